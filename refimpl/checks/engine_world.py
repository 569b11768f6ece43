"""The engine beside the account, over a real scheduler and a cache of notes: what chapter 11 plays histories on."""

from __future__ import annotations

import random
from typing import Any

from refimpl.checks.engine_account import EagerScheduler, NotingWorker, RecordingScheduler
from refimpl.checks.step import Log, Names, Operation, Setup, Violation, World, counted
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.sequence import SamplingParams, SequenceGroup

MODES = (None, "recompute", "swap")


def sizes(
    block_size: int,
    num_gpu_blocks: int,
    num_cpu_blocks: int = 8,
    *,
    max_model_len: int = 40,
    mode: str | None = None,
    caching: bool = False,
    eager: bool = False,
) -> Setup:
    """A world's sizes; `mode` is how its scheduler preempts, and `caching` is prefix caching.

    `eager` is for a scheduler that may swap in and out in one step.
    """
    return {
        "block_size": block_size,
        "num_gpu_blocks": num_gpu_blocks,
        "num_cpu_blocks": num_cpu_blocks,
        "max_model_len": max_model_len,
        "mode + 1": MODES.index(mode) + 1,
        "caching + 1": int(caching) + 1,
        "eager + 1": int(eager) + 1,
    }


def random_sizes(rng: random.Random) -> Setup:
    """Pools that are full soon."""
    return sizes(
        rng.choice((1, 2, 3, 4)),
        rng.randint(4, 12),
        rng.randint(1, 12),
        max_model_len=rng.choice((12, 24, 40)),
        mode=rng.choice(MODES),
        caching=rng.random() < 0.4,
        eager=rng.random() < 0.3,
    )


class EngineWorld(World):
    """An engine over a recording scheduler and a worker that keeps notes."""

    may_be_eager = True  # whether a scheduler may be one that need not come to an end
    lost: tuple[str, ...] = ()  # the properties that do not hold of a call that raised

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.names = Names()
        block_size, gpu, cpu = setup["block_size"], setup["num_gpu_blocks"], setup["num_cpu_blocks"]
        caching, mode = setup["caching + 1"] == 2, MODES[setup["mode + 1"] - 1]
        eager = self.may_be_eager and setup["eager + 1"] == 2
        self.block_size, self.max_model_len = block_size, setup["max_model_len"]
        self.scheduler = (EagerScheduler if eager else RecordingScheduler)(
            SchedulerConfig(max_model_len=self.max_model_len, preemption_mode=mode),
            CacheConfig(block_size, enable_prefix_caching=caching, num_gpu_blocks=gpu, num_cpu_blocks=cpu),
        )
        self.worker = NotingWorker(block_size)
        words = self._words(gpu, cpu)
        words += f", preemption_mode {mode!r}" * (mode is not None) + ", prefix caching" * caching
        words += ", a scheduler that may swap in and out in one step" * eager
        line = f"engine = Engine(scheduler, worker, max_model_len={self.max_model_len})    # {words}"
        self.engine = log.call(line, subject, self.scheduler, self.worker, self.max_model_len)

    def perform(self, operation: Operation) -> None:
        """As every world does; a call that raised gives nobody what it was made for."""
        try:
            super().perform(operation)
        except Violation:
            raise
        except Exception:
            self.log.broken.update(self.lost)
            raise

    def _words(self, gpu: int, cpu: int) -> str:
        """The sizes of the pools, as far as they matter."""
        return f"GPU {gpu} and CPU {cpu} blocks of {counted(self.block_size, 'token')}"

    def asked(
        self, num_tokens: int, text: int, n: int, max_tokens: int, ignore_eos: int
    ) -> tuple[list[int], SamplingParams, tuple[str, str]]:
        """A prompt of `num_tokens` of a text and what is asked of it, and both as the learner reads them."""
        prompt = prompt_of(num_tokens, text)
        params = SamplingParams(n=n, max_tokens=max_tokens, ignore_eos=bool(ignore_eos))
        words = [f"n={n}"] * (n > 1) + [f"max_tokens={max_tokens}"] + ["ignore_eos=True"] * params.ignore_eos
        called = f"prompt({num_tokens}{f', text={text}' * bool(text)})", f"SamplingParams({', '.join(words)})"
        return prompt, params, called

    def why(self, group: SequenceGroup) -> str:
        """The scheduler's last word on a request: the reason, if it has given it up."""
        decisions = (each for decided in self.scheduler.steps for each in decided.outputs.decisions)
        return ([each.reason for each in decisions if each.request_id == group.request_id] or [""])[-1]

    def says_why(self, error: Any, group: SequenceGroup | None) -> tuple[bool, str | None]:
        """Whether this error is the reason why the request was given up, and what it tells if not.

        `group` is None for a request that was not given up, which has no error.
        """
        if group is None:
            return error is None, "reason-for-all"
        says_something = isinstance(error, str) and error != ""
        return says_something and self.why(group) in error, None if says_something else "no-reason"


def prompt_of(num_tokens: int, text: int) -> list[int]:
    """So many tokens of this text."""
    return [1000 * (text + 1) + position for position in range(num_tokens)]
