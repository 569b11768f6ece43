"""The small engine of chapter 11 gives the tokens that the large one gives, whatever the pools are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engines import Alone, Ask, greedy, workload

from refimpl import CacheConfig, SamplingParams, Scheduler, SchedulerConfig
from refimpl.serving.plain_engine import Answer, Engine
from refimpl.serving.random_model import random_model
from refimpl.serving.weights import LoadedModel, load_model
from refimpl.serving.worker import Worker

PROMPT = tuple(range(30, 60))
POOLS = {
    "roomy": {"num_gpu_blocks": 400},
    "recompute": {"num_gpu_blocks": 20},
    "swap": {"num_gpu_blocks": 20, "num_cpu_blocks": 120, "mode": "swap"},
    "caching": {"num_gpu_blocks": 400, "caching": True},
    "caching and recompute": {"num_gpu_blocks": 24, "caching": True},
    "caching and swap": {"num_gpu_blocks": 24, "num_cpu_blocks": 120, "mode": "swap", "caching": True},
}


def engine_over(
    model: LoadedModel, num_gpu_blocks: int, num_cpu_blocks: int = 120, mode: str | None = None, caching: bool = False
) -> Engine:
    cache_config = CacheConfig(
        4, enable_prefix_caching=caching, num_gpu_blocks=num_gpu_blocks, num_cpu_blocks=num_cpu_blocks
    )
    scheduler = Scheduler(SchedulerConfig(max_model_len=64, preemption_mode=mode), cache_config)
    return Engine(scheduler, Worker(model, cache_config), max_model_len=64)


def answers(engine: Engine, asks: list[Ask]) -> list[Answer]:
    return engine.generate([list(ask.prompt) for ask in asks], [ask.params for ask in asks])


def made_room(engine: Engine) -> dict[str, int]:
    """A count that goes up whenever the scheduler preempts, by how."""
    counts = {"recompute": 0, "swap out": 0}
    schedule = engine.scheduler.schedule

    def counting(now: float | None = None):
        metadata, outputs = schedule(now)
        for decision in outputs.decisions:
            if decision.action in counts:
                counts[decision.action] += 1
        return metadata, outputs

    engine.scheduler.schedule = counting
    return counts


def differences(alone: Alone, asks: list[Ask], found: list[Answer]) -> list[str]:
    return [
        f"request {index}, branch {branch}: {difference}"
        for index, (ask, answer) in enumerate(zip(asks, found, strict=True))
        for branch, tokens in enumerate(answer.token_ids)
        if (difference := alone.difference(ask, branch, tokens)) is not None
    ]


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("seed", [1, 2])
def test_greedy_tokens_are_those_of_each_request_alone(tiny_model: LoadedModel, alone: Alone, pool, seed: int):
    asks = workload(seed)
    engine = engine_over(tiny_model, **pool)
    counts = made_room(engine)
    for _ in range(2):  # the second time much of it is cached, where there is a cache
        found = answers(engine, asks)
        assert differences(alone, asks, found) == []
        assert {answer.error for answer in found} == {None}
    if pool["num_gpu_blocks"] < 100:
        assert counts["swap out" if pool.get("mode") else "recompute"] > 0


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
def test_parallel_answers_draw_for_themselves_and_do_not_depend_on_memory(tiny_model: LoadedModel, pool):
    params = SamplingParams(n=3, seed=5, max_tokens=8, ignore_eos=True)
    asks = [Ask(PROMPT[:length], params) for length in (3, 6, 9, 13)]
    roomy = answers(engine_over(tiny_model, 400), asks)
    pool = pool | {"num_gpu_blocks": max(pool["num_gpu_blocks"], 24)}
    assert answers(engine_over(tiny_model, **pool), asks) == roomy
    for answer in roomy:
        assert [len(tokens) for tokens in answer.token_ids] == [8, 8, 8]
        assert len({tuple(tokens) for tokens in answer.token_ids}) == 3


def test_greedy_answers_of_one_request_are_the_same(tiny_model: LoadedModel):
    (answer,) = answers(engine_over(tiny_model, 40), [Ask(PROMPT[:5], greedy(6, n=3))])
    assert answer.token_ids == [answer.token_ids[0]] * 3


def test_a_request_that_can_never_run_is_answered_with_the_reason(tiny_model: LoadedModel, alone: Alone):
    asks = [Ask(PROMPT[:30], greedy(4)), Ask(PROMPT[:5], greedy(4))]
    too_long, fine = answers(engine_over(tiny_model, 6), asks)
    assert too_long == Answer([[]], "its prompt needs more blocks than the pool has above the watermark")
    assert fine.error is None
    assert alone.difference(asks[1], 0, fine.token_ids[0]) is None


def test_an_answer_that_outgrows_the_pool_keeps_what_it_has(tiny_model: LoadedModel, alone: Alone):
    ask = Ask(PROMPT[:6], greedy(20))
    (answer,) = answers(engine_over(tiny_model, 3), [ask])
    assert answer.error is not None
    assert 0 < len(answer.token_ids[0]) < 20
    assert alone.difference(ask, 0, answer.token_ids[0], ended=False) is None


def test_an_answer_ends_at_the_models_end_token(tiny_model: LoadedModel, alone: Alone):
    ask = Ask(PROMPT[:6], greedy(12))
    tokens = alone.answer(ask)
    engine = engine_over(tiny_model, 20)
    engine.worker.eos_token_ids = (tokens[4],)
    (answer,) = engine.generate([list(ask.prompt)], [replace(ask.params, ignore_eos=False)])
    assert answer.token_ids == [tokens[: tokens.index(tokens[4]) + 1]]


def test_a_worker_has_to_know_its_pools(tiny_model: LoadedModel):
    with pytest.raises(ValueError, match="no num_gpu_blocks"):
        Worker(tiny_model, CacheConfig(4))


def test_the_random_model_is_the_same_every_time_and_speaks_any_text():
    first, second = random_model(), random_model()
    assert all(bool((first[1][name] == tensor).all()) for name, tensor in second[1].items())
    tokenizer = load_model("random-tiny").tokenizer
    text = "naïve 日本 <b>"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    conversation = tokenizer.apply_chat_template([{"role": "user", "content": text}], default_system_prompt=False)
    assert tokenizer.decode(conversation) == f"user\n{text}\nassistant\n"
