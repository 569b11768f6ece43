"""How long a step takes: a sum of what it computes, reads and moves, each with a price.

The prices are what a simulation stands on, so each says where it comes from: measured, or worked out from published
figures. A sum is a simplification: on a GPU reading and computing overlap, and a step takes the longer of the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class CostModel:
    """Prices in seconds, and the size of a token's keys and values in bytes.

    Args:
        seconds_per_step: of every step, whatever it holds: the weights are read once.
        seconds_per_prefill_token: of each prompt token that is computed.
        seconds_per_decode_token: of each sequence that a decode step moves on.
        seconds_per_context_token: of each token whose keys and values a decode reads.
        seconds_per_swapped_byte: of each byte that moves between the pools.
        kv_bytes_per_token: keys and values of one token in all layers.
        seconds_per_prefill_pair: of each pair of a prompt token and one that it looks back on, itself included: the
            attention of long prompts.

    Raises:
        ValueError: for a price that is negative or not finite, or when no step would take any time.

    >>> model = CostModel(0.5, 0.1, 0.2, 0.01, 0.001, kv_bytes_per_token=100)
    >>> model.step_seconds(num_decode_tokens=2, num_context_tokens=30)
    1.2
    """

    seconds_per_step: float
    seconds_per_prefill_token: float
    seconds_per_decode_token: float
    seconds_per_context_token: float
    seconds_per_swapped_byte: float
    kv_bytes_per_token: int
    seconds_per_prefill_pair: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{item.name} is {value}, it must be 0 or more, and finite")
        if not self.seconds_per_step and not (self.seconds_per_prefill_token and self.seconds_per_decode_token):
            raise ValueError("seconds_per_step is 0 and so is the price of a token: time would stand still")

    def step_seconds(
        self,
        *,
        num_prefill_tokens: int = 0,
        num_prefill_pairs: int = 0,
        num_decode_tokens: int = 0,
        num_context_tokens: int = 0,
        num_swapped_bytes: int = 0,
    ) -> float:
        """How long a step takes that holds all this.

        Args:
            num_prefill_tokens: prompt tokens that are computed; those found in the cache cost nothing.
            num_prefill_pairs: for each of them, the tokens that it looks back on, itself included.
            num_decode_tokens: sequences that are moved on by a token.
            num_context_tokens: the lengths of those sequences, added up.
            num_swapped_bytes: in both directions.
        """
        return (
            self.seconds_per_step
            + self.seconds_per_prefill_token * num_prefill_tokens
            + self.seconds_per_prefill_pair * num_prefill_pairs
            + self.seconds_per_decode_token * num_decode_tokens
            + self.seconds_per_context_token * num_context_tokens
            + self.seconds_per_swapped_byte * num_swapped_bytes
        )


def num_attended_pairs(num_new_tokens: int, num_cached_tokens: int = 0) -> int:
    """Pairs of a prompt token that is computed and a token that it looks back on, itself included.

    >>> num_attended_pairs(3), num_attended_pairs(2, num_cached_tokens=10)
    (6, 23)
    """
    return num_new_tokens * num_cached_tokens + num_new_tokens * (num_new_tokens + 1) // 2


CPU_SMOLLM2_135M = CostModel(
    # This course's engine on 2 cores of an AMD EPYC (Zen 4), float32; figures of refimpl/README.md.
    # "Serving, beside vLLM": 1, 8, 32 and 64 requests for 64 tokens, prompts taken as 48, make 26.8, 164.8, 322.1
    # and 365.8 tokens/s. Prompts and contexts paid for, these two fit the four rows best; they miss them by 4 %.
    seconds_per_step=33.7e-3,
    seconds_per_decode_token=1.02e-3,
    # "The products run at 1.0 ms a token in prompts", and attention of prompts and the rest add 1.9 s to 11.3 s.
    seconds_per_prefill_token=1.17e-3,
    # "Attention through block tables", SmolLM2: 1.52 ms a layer for 32 contexts of 512 tokens, 30 layers.
    seconds_per_context_token=2.8e-6,
    # 201 MB are read in 6 ms: a copy reads and writes.
    seconds_per_swapped_byte=2 * 6e-3 / 201e6,
    kv_bytes_per_token=2 * 30 * 3 * 64 * 4,  # keys and values, layers, KV heads, head_dim, bytes
)
"""SmolLM2-135M-Instruct on this course's CPU engine, measured."""

# NVIDIA's data sheet of the A100 SXM: bytes and operations a second, and PCIe 4.0 x16 in one direction.
_A100_40GB_BANDWIDTH = 1.555e12
_A100_FP16_FLOPS = 312e12
_PCIE_BANDWIDTH = 32e9
# Splitwise (ISCA 2024), table IV: eight A100 compute a median coding prompt of 1500 tokens with Llama-70B in 185 ms,
# which is 2 * 70e9 * 1500 / 0.185 operations a second: 45 % of the peak.
_A100_PREFILL_EFFICIENCY = 0.45

GPU_OPT_13B_A100 = CostModel(
    # PagedAttention paper (SOSP 2023), table 1: 26 GB of weights, read once a step at the full bandwidth.
    seconds_per_step=26e9 / _A100_40GB_BANDWIDTH,
    seconds_per_prefill_token=2 * 13e9 / (_A100_FP16_FLOPS * _A100_PREFILL_EFFICIENCY),
    seconds_per_decode_token=2 * 13e9 / _A100_FP16_FLOPS,
    # The same paper, section 3: 2 * 5120 * 40 * 2 bytes, 800 KB a token.
    seconds_per_context_token=2 * 5120 * 40 * 2 / _A100_40GB_BANDWIDTH,
    seconds_per_swapped_byte=1 / _PCIE_BANDWIDTH,
    kv_bytes_per_token=2 * 5120 * 40 * 2,
    # A score and its share of the sum: 2 products of 2 operations, hidden size 5120, 40 layers.
    seconds_per_prefill_pair=4 * 5120 * 40 / (_A100_FP16_FLOPS * _A100_PREFILL_EFFICIENCY),
)
"""OPT-13B in float16 on one A100-40GB, as in the PagedAttention paper: its pool holds 15.7K slots (table 1), which is
981 blocks of 16. Weights and caches are read at the data sheet's bandwidth, so a real step takes longer."""

GPU_LLAMA2_70B_8XA100 = CostModel(
    # Splitwise (ISCA 2024), table IV, conversation: 40 ms between tokens, without batching; the context of 1,020 prompt
    # tokens and their answer takes 0.02 ms of them.
    seconds_per_step=40e-3,
    # The same table, coding: 185 ms to the first token of 1500 prompt tokens; what exceeds a step is the prompt's. For
    # the 1020 of a conversation that makes 139 ms, where the table has 155.
    seconds_per_prefill_token=(185e-3 - 40e-3) / 1500,
    seconds_per_decode_token=2 * 70e9 / (8 * _A100_FP16_FLOPS),
    # 80 layers, 8 KV heads of 128, float16; eight A100-80GB read 2.039 TB/s each (data sheet).
    seconds_per_context_token=2 * 80 * 8 * 128 * 2 / (8 * 2.039e12),
    seconds_per_swapped_byte=1 / (8 * _PCIE_BANDWIDTH),
    kv_bytes_per_token=2 * 80 * 8 * 128 * 2,
    # 2 products of 2 operations, hidden size 8192, 80 layers.
    seconds_per_prefill_pair=4 * 8192 * 80 / (8 * _A100_FP16_FLOPS * _A100_PREFILL_EFFICIENCY),
)
"""Llama-2-70B in float16 on eight A100-80GB, as Splitwise measured it for the Azure traces. 640 GB less 140 GB of
weights leave room for about 1.3 million tokens of keys and values at 0.9 of the memory."""

_LLAMA_8B = 8 / 70  # weights of Llama-3.1-8B by those of Llama-2-70B
GPU_LLAMA3_8B_8XA100 = CostModel(
    # What Splitwise measured for the 70B model, by the number of weights.
    seconds_per_step=_LLAMA_8B * GPU_LLAMA2_70B_8XA100.seconds_per_step,
    seconds_per_prefill_token=_LLAMA_8B * GPU_LLAMA2_70B_8XA100.seconds_per_prefill_token,
    seconds_per_decode_token=_LLAMA_8B * GPU_LLAMA2_70B_8XA100.seconds_per_decode_token,
    # 32 layers for 80, with the same 8 KV heads of 128, and a hidden size of 4096 for 8192: Llama 3 paper, table 3.
    seconds_per_context_token=32 / 80 * GPU_LLAMA2_70B_8XA100.seconds_per_context_token,
    seconds_per_swapped_byte=GPU_LLAMA2_70B_8XA100.seconds_per_swapped_byte,
    kv_bytes_per_token=2 * 32 * 8 * 128 * 2,
    seconds_per_prefill_pair=32 / 80 * 4096 / 8192 * GPU_LLAMA2_70B_8XA100.seconds_per_prefill_pair,
)
"""Llama-3.1-8B in float16 on eight A100-80GB, which keep up with the prompts of a Mooncake trace: 128K of context."""

PRESETS = {
    "cpu-smollm2-135m": CPU_SMOLLM2_135M,
    "gpu-opt-13b-a100": GPU_OPT_13B_A100,
    "gpu-llama2-70b-8xa100": GPU_LLAMA2_70B_8XA100,
    "gpu-llama3-8b-8xa100": GPU_LLAMA3_8B_8XA100,
}  # name on the command line -> prices
