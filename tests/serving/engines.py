"""Engines with pools of chosen sizes, what a request answers alone, and the comparison of the two.

Alone means without any paging: `DenseLlama` has no cache. To generate with it token by token would take a forward
pass for each; one pass over prompt and answer is enough to see that every token of the answer is the one that it
would have chosen, and that is the same statement.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from dense_llama import DenseLlama

from refimpl import CacheConfig, LLMEngine, SamplingParams, SchedulerConfig
from refimpl.parts import Parts
from refimpl.scheduler import SchedulerOutputs
from refimpl.serving.outputs import RequestOutput
from refimpl.serving.weights import LoadedModel

DATA = Path(__file__).parents[1] / "data" / "serving"
TIE = 1e-4  # logits this close may change places when float32 adds in another order
MAX_STEPS = 20_000  # nothing here takes as long: a loop that does not end shall say so


@dataclass(frozen=True)
class Ask:
    """One request: a prompt and how to go on from there."""

    prompt: tuple[int, ...]
    params: SamplingParams

    @property
    def key(self) -> tuple[object, ...]:
        params = self.params
        return self.prompt, params.temperature, params.top_p, params.max_tokens, params.seed, params.ignore_eos


def greedy(max_tokens: int, **others: object) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, **others)


def sampled(max_tokens: int, seed: int, **others: object) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, seed=seed, ignore_eos=True, **others)


def workload(seed: int, num_requests: int = 16, *, branches: bool = False) -> list[Ask]:
    """Prompts of lengths around the edges of blocks, many of which begin alike; answers of 3 to 33 tokens."""
    rng = random.Random(seed)
    prefix = [rng.randrange(320) for _ in range(12)]
    asks = []
    for index in range(num_requests):
        own = [rng.randrange(320) for _ in range(rng.choice([1, 2, 3, 4, 5, 7, 8, 9]))]
        prompt = (*prefix[: rng.choice([0, 3, 4, 5, 8, 12])], *own)
        max_tokens = rng.choice([3, 12, 20, 33])
        if branches and index % 2:
            top_p = rng.choice([1.0, 0.8])
            params = sampled(min(max_tokens, 16), 1000 * seed + 10 * index, n=rng.choice([2, 3]), top_p=top_p)
        else:
            params = greedy(max_tokens, n=rng.choice([1, 1, 2, 3]) if branches else 1)
        asks.append(Ask(prompt, params))
    return asks


def engine_of(
    model: LoadedModel,
    num_gpu_blocks: int,
    num_cpu_blocks: int = 0,
    *,
    block_size: int = 4,
    caching: bool = False,
    mode: str | None = None,
    max_model_len: int = 64,
    parts: Parts | None = None,
    **limits: int,
) -> LLMEngine:
    return LLMEngine(
        model,
        CacheConfig(
            block_size,
            enable_prefix_caching=caching,
            num_gpu_blocks=num_gpu_blocks,
            num_cpu_blocks=num_cpu_blocks,
        ),
        SchedulerConfig(max_model_len=max_model_len, preemption_mode=mode, **limits),
        parts,
    )


def add(engine: LLMEngine, asks: Iterable[Ask], start: int = 0) -> None:
    """Queue the requests under the ids "0", "1", ..., or from `start` on."""
    for index, ask in enumerate(asks, start):
        engine.add_request(str(index), {"prompt_token_ids": list(ask.prompt)}, ask.params)


def run(engine: LLMEngine) -> dict[str, RequestOutput]:
    """Step until nothing is left: the last output of every request."""
    last = {}
    for _ in range(MAX_STEPS):
        if not engine.has_unfinished_requests():
            return last
        last.update({output.request_id: output for output in engine.step()})
    raise AssertionError(
        f"after {MAX_STEPS} steps {engine.scheduler.get_num_unfinished_seq_groups()} requests are left"
    )


def record_steps(engine: LLMEngine) -> list[SchedulerOutputs]:
    """A list to which every step from now on adds what the scheduler decided."""
    steps: list[SchedulerOutputs] = []
    schedule = engine.scheduler.schedule

    def recording(now: float | None = None) -> tuple[list, SchedulerOutputs]:
        metadata, outputs = schedule(now)
        steps.append(outputs)
        return metadata, outputs

    engine.scheduler.schedule = recording
    return steps


def tokens_of(output: RequestOutput) -> list[list[int]]:
    """Of every branch."""
    return [completion.token_ids for completion in output.outputs]


class Alone:
    """What requests answer alone, each worked out once and held against the model without a cache."""

    def __init__(self, model: LoadedModel, dense: DenseLlama, num_gpu_blocks: int = 33) -> None:
        self._dense = dense
        self._engine = engine_of(model, num_gpu_blocks, block_size=16, max_model_len=512)
        self._answers: dict[tuple[object, ...], list[int]] = {}

    def answer(self, ask: Ask, branch: int = 0) -> list[int]:
        """The tokens of one branch as a request of its own: branch i draws with the request's seed + i."""
        params = replace(ask.params, n=1, best_of=None)
        if params.seed is not None:
            params.seed += branch
        ask = Ask(ask.prompt, params)
        if ask.key not in self._answers:
            add(self._engine, [ask])
            ((answer,),) = (tokens_of(output) for output in run(self._engine).values())
            if params.temperature == 0:
                self._check(ask.prompt, answer)
            self._answers[ask.key] = answer
        return self._answers[ask.key]

    def _check(self, prompt: tuple[int, ...], answer: list[int]) -> None:
        """Every token is the likeliest behind those before it."""
        _, _, logits = self._dense.forward([*prompt, *answer[:-1]])
        logits = logits[len(prompt) - 1 :]
        behind = logits.amax(dim=-1) - logits[torch.arange(len(answer)), answer]
        assert behind.max() <= TIE, f"token {int(behind.argmax())} is not the one that the dense model chooses"

    def difference(self, ask: Ask, branch: int, tokens: list[int], *, ended: bool = True) -> str | None:
        """Where a branch's tokens leave those that it has alone; None where they do not, or where two tokens tie."""
        expected = self.answer(ask, branch)
        if not ended:
            expected = expected[: len(tokens)]
        if tokens == expected:
            return None
        where = next((i for i, pair in enumerate(zip(tokens, expected, strict=False)) if pair[0] != pair[1]), None)
        if where is None:
            return f"{len(tokens)} tokens, alone {len(expected)}"
        if ask.params.temperature == 0:
            logits = self._dense.forward([*ask.prompt, *expected[:where]])[2][-1]
            if logits[expected[where]] - logits[tokens[where]] <= TIE:
                return None
        return f"token {where} is {tokens[where]}, alone it is {expected[where]}"

    def differences(self, asks: Iterable[Ask], outputs: dict[str, RequestOutput], start: int = 0) -> list[str]:
        """Every branch that differs and every request that did not end well: empty when memory made no difference."""
        found = []
        for index, ask in enumerate(asks, start):
            output = outputs[str(index)]
            if output.error is not None or len(output.outputs) != ask.params.n:
                found.append(f"request {index}: {output.error}, {len(output.outputs)} outputs")
                continue
            for branch, tokens in enumerate(tokens_of(output)):
                difference = self.difference(ask, branch, tokens)
                if difference is not None:
                    found.append(f"request {index}, branch {branch}: {difference}")
        return found


def assert_nothing_is_left(engine: LLMEngine) -> None:
    """All blocks are back, and no request has left a trace."""
    manager, scheduler = engine.block_manager, engine.scheduler
    assert manager.get_num_free_gpu_blocks() == manager.num_total_gpu_blocks
    assert manager.get_num_free_cpu_blocks() == manager.num_total_cpu_blocks
    assert manager.block_tables == {}
    assert engine._requests == {}
    assert not any((scheduler.waiting, scheduler.running, scheduler.swapped))
    assert not any((scheduler._seq_ids, scheduler._progress))
