"""What the engine can tell about a step: one plain record, the same for every step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """The state after a step, in groups and blocks, and what has been done so far.

    step: steps so far, this one included. num_running, num_waiting, num_swapped: requests in the scheduler's queues.
    num_free_gpu_blocks, num_free_cpu_blocks: free blocks. num_prompt_tokens, num_cached_tokens: prompt tokens since the
    start, and those of them that were found in the cache and not computed. num_generated_tokens: tokens of answers
    since the start. num_preemptions: groups that made room since the start. bytes_swapped_out, bytes_swapped_in: moved
    to and from the CPU pool since the start. step_tokens: tokens generated in this step. step_seconds: what it took.
    (vLLM 0.5.4: `vllm/engine/metrics.py`, `Stats`.)

    >>> StepMetrics(num_prompt_tokens=40, num_cached_tokens=10).cache_hit_rate
    0.25
    """

    step: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_swapped: int = 0
    num_free_gpu_blocks: int = 0
    num_free_cpu_blocks: int = 0
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_generated_tokens: int = 0
    num_preemptions: int = 0
    bytes_swapped_out: int = 0
    bytes_swapped_in: int = 0
    step_tokens: int = 0
    step_seconds: float = 0.0

    @property
    def cache_hit_rate(self) -> float:
        """Share of the prompt tokens so far that did not have to be computed, 0 to 1."""
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens that this step generated, per second; 0 before the first step."""
        return self.step_tokens / self.step_seconds if self.step_seconds else 0.0
