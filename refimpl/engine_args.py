"""The flags that `generate` and `simulate` share: how memory is cut, and what a step may hold.

Names, and defaults where a model and a simulation can have the same, are vLLM's. Values are checked where they are
used: by `CacheConfig`, `SchedulerConfig`, and whoever sizes the pools.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields


@dataclass(slots=True)
class EngineArgs:
    """Flags about memory and limits, one field each. (vLLM 0.5.4: `vllm/engine/arg_utils.py`, `EngineArgs`.)

    Args:
        block_size: tokens a block.
        gpu_memory_utilization: share of the device's memory that model and cache may take.
        num_gpu_blocks_override: blocks of the GPU pool, instead of what would fit.
        swap_space: GiB of host memory for swapped blocks; None stands for twice the GPU pool.
        enable_prefix_caching: reuse blocks whose tokens have been seen before.
        preemption_mode: "recompute", "swap", or None to choose by the number of sequences.
        max_model_len: tokens a sequence, prompt and output together.
        max_num_seqs: sequences a step.
        max_num_batched_tokens: prompt tokens a step.

    >>> parser = argparse.ArgumentParser()
    >>> EngineArgs.add_cli_args(parser)
    >>> EngineArgs.from_cli_args(parser.parse_args(["--block-size", "32"])).block_size
    32
    """

    block_size: int = 16
    gpu_memory_utilization: float = 0.9
    num_gpu_blocks_override: int | None = None
    swap_space: float | None = None
    enable_prefix_caching: bool = False
    preemption_mode: str | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> None:
        """Declare the flags, in two groups of the parser's help."""
        memory = parser.add_argument_group("memory").add_argument
        memory("--block-size", type=int, default=16, metavar="TOKENS", help="of a block (default: 16)")
        share = "of memory, for the pool (default: 0.9)"
        memory("--gpu-memory-utilization", type=float, default=0.9, metavar="SHARE", help=share)
        memory("--num-gpu-blocks-override", type=int, metavar="BLOCKS", help="of the pool, instead of what fits")
        memory(
            "--swap-space",
            type=float,
            metavar="GIB",
            help="of host memory for swapped blocks (default: twice the pool)",
        )
        memory("--enable-prefix-caching", action="store_true", help="reuse blocks of tokens that have been seen before")
        memory(
            "--preemption-mode",
            choices=("recompute", "swap"),
            help="how a request makes room: it is computed again later, or its blocks move to the host "
            "(default: recompute for one answer, swap for several)",
        )

        limits = parser.add_argument_group("limits").add_argument
        limits("--max-model-len", type=int, metavar="TOKENS", help="of a sequence, prompt and answer together")
        limits("--max-num-seqs", type=int, default=256, metavar="N", help="sequences at once (default: 256)")
        limits("--max-num-batched-tokens", type=int, metavar="TOKENS", help="of all prompts in one step")

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> EngineArgs:
        """The flags of a command line that `add_cli_args` has declared."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})
