"""The flags that size the cache and bound a step, under vLLM's names and with vLLM's defaults.

Plain records that refuse impossible values; nothing here computes. The block manager and the scheduler read them.
"""

from __future__ import annotations

from dataclasses import dataclass

PREEMPTION_MODES = (None, "recompute", "swap")
POLICIES = ("fcfs", "longest-slowest")


@dataclass(slots=True)
class CacheConfig:
    """How memory is cut into blocks. (vLLM 0.5.4: `vllm/config.py`, `CacheConfig`.)

    Args:
        block_size: tokens a block.
        gpu_memory_utilization: share of the device's memory that model and cache may take, above 0 and at most 1.
        swap_space: GiB of host memory for swapped blocks; None stands for twice the GPU's KV cache.
        enable_prefix_caching: reuse blocks whose tokens have been seen before.
        num_gpu_blocks, num_cpu_blocks: sizes of the two pools, in blocks; None until they are known.

    Raises:
        ValueError: for a value outside its range, with the value and the range.

    >>> CacheConfig().block_size, CacheConfig(swap_space=4).swap_space
    (16, 4)
    """

    block_size: int = 16
    gpu_memory_utilization: float = 0.9
    swap_space: float | None = None
    enable_prefix_caching: bool = False
    num_gpu_blocks: int | None = None
    num_cpu_blocks: int | None = None

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size is {self.block_size}, it must be 1 or more")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError(
                f"gpu_memory_utilization is {self.gpu_memory_utilization}, it must be above 0 and at most 1"
            )
        for name in ("num_gpu_blocks", "num_cpu_blocks"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be 0 or more")
        if self.swap_space is not None and self.swap_space < 0:
            raise ValueError(f"swap_space is {self.swap_space} GiB, it must be 0 or more")


@dataclass(slots=True)
class SchedulerConfig:
    """What one step may hold. (vLLM 0.5.4: `vllm/config.py`, `SchedulerConfig`.)

    Args:
        max_num_batched_tokens: tokens a step; None stands for max_model_len, and at least 2048.
        max_num_seqs: sequences a step.
        max_model_len: tokens a sequence, prompt and output together.
        preemption_mode: "recompute", "swap", or None to choose by the number of sequences.
        policy: "fcfs", or "longest-slowest" for the choice of victims.
        enable_chunked_prefill, num_lookahead_slots: vLLM's flags for what is left out here; as they are.

    Raises:
        ValueError: for a value outside its range, or a step too small for one sequence of full length.
        NotImplementedError: for chunked prefill or lookahead slots.

    >>> SchedulerConfig(max_model_len=1024).max_num_batched_tokens
    2048
    """

    max_num_batched_tokens: int | None = None
    max_num_seqs: int = 256
    max_model_len: int = 0  # to be given: there is no default that fits every model
    preemption_mode: str | None = None
    policy: str = "fcfs"
    enable_chunked_prefill: bool = False
    num_lookahead_slots: int = 0

    def __post_init__(self) -> None:
        for name in ("enable_chunked_prefill", "num_lookahead_slots"):
            if getattr(self, name):
                raise NotImplementedError(f"{name} is {getattr(self, name)}, which is left out here: leave it out")
        if self.max_model_len < 1:
            raise ValueError(f"max_model_len is {self.max_model_len}, it must be 1 or more")
        if self.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs is {self.max_num_seqs}, it must be 1 or more")
        if self.max_num_batched_tokens is None:
            self.max_num_batched_tokens = max(self.max_model_len, 2048)
        for name, limit in (("max_model_len", self.max_model_len), ("max_num_seqs", self.max_num_seqs)):
            if self.max_num_batched_tokens < limit:
                raise ValueError(
                    f"max_num_batched_tokens is {self.max_num_batched_tokens}, it must be {name} ({limit}) or more"
                )
        if self.preemption_mode not in PREEMPTION_MODES:
            raise ValueError(f"preemption_mode is {self.preemption_mode!r}, it must be one of {PREEMPTION_MODES}")
        if self.policy not in POLICIES:
            raise ValueError(f"policy is {self.policy!r}, it must be one of {POLICIES}")
