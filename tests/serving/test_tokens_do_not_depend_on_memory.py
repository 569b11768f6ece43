"""One statement, tested many ways: the tokens of a request do not depend on how memory was managed.

Whatever the pools, the block size, the order and the company, with preemption by recompute or by swap, with prefixes
taken from the cache or computed: each request, and each branch of a request, gets the tokens that it gets alone.
`test_planted_faults.py` shows that these comparisons can fail.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from dense_llama import DenseLlama
from engines import (
    Alone,
    Ask,
    add,
    assert_nothing_is_left,
    engine_of,
    greedy,
    record_steps,
    run,
    sampled,
    tokens_of,
    workload,
)

from refimpl.serving.weights import LoadedModel

POOL = {1: 60, 4: 16, 16: 6, 32: 4}  # block size -> blocks of a pool that is too small for sixteen requests at once
MODES = ("recompute", "swap")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block_size", POOL)
def test_with_room_for_all(tiny_model: LoadedModel, alone: Alone, block_size: int, seed: int):
    """Batched, in a pool where nobody has to make room."""
    asks = workload(seed)
    engine = engine_of(tiny_model, 1024 // block_size, block_size=block_size)
    add(engine, asks)
    assert alone.differences(asks, run(engine)) == []
    assert engine.metrics.num_preemptions == 0


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block_size", POOL)
def test_in_a_pool_that_runs_full(
    tiny_model: LoadedModel, alone: Alone, block_size: int, mode: str, caching: bool, seed: int
):
    """B23, C21. Two rounds on one engine, of which the second finds what the first has left in the cache."""
    asks = workload(seed)
    pool = POOL[block_size]
    engine = engine_of(
        tiny_model,
        pool,
        20 * pool,
        block_size=block_size,
        mode=mode,
        caching=caching,
        max_model_len=min(64, pool * block_size),
    )
    steps = record_steps(engine)
    for round_start in (0, len(asks)):
        add(engine, asks, round_start)
        outputs = run(engine)
        assert alone.differences(asks, outputs, round_start) == []
        for ask, output in zip(asks, outputs.values(), strict=True):
            assert output.prompt_token_ids == list(ask.prompt)  # a recompute has made no prompt of an answer
    metrics = engine.metrics
    assert metrics.num_preemptions == sum(step.preempted for step in steps) >= 10
    assert (metrics.bytes_swapped_out > 0) == (mode == "swap")
    assert (metrics.num_cached_tokens > 0) == caching or block_size >= 16  # the pool's few blocks are soon taken
    assert_nothing_is_left(engine)


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_hundreds_of_preemptions(tiny_model: LoadedModel, alone: Alone, mode: str, caching: bool):
    """C21. A hundred requests through a pool that holds two or three of them."""
    asks = workload(77, num_requests=100)
    engine = engine_of(tiny_model, 14, 400, mode=mode, caching=caching, max_model_len=56)
    steps = record_steps(engine)
    add(engine, asks)
    assert alone.differences(asks, run(engine)) == []
    assert engine.metrics.num_preemptions >= 100
    block_bytes = 3 * 2 * 4 * 2 * 8 * 4
    for swapped, moved in (
        (engine.metrics.bytes_swapped_out, [pair for step in steps for pair in step.blocks_to_swap_out]),
        (engine.metrics.bytes_swapped_in, [pair for step in steps for pair in step.blocks_to_swap_in]),
    ):
        assert swapped == len(moved) * block_bytes
        assert (len(moved) >= 400) == (mode == "swap")
    assert_nothing_is_left(engine)


def test_a_cached_prefix_is_not_computed_again(tiny_model: LoadedModel, alone: Alone):
    """B02, B23. The second round of the same prompts computes one block of each, and says the same."""
    rng = random.Random(5)
    asks = [Ask(tuple(rng.randrange(320) for _ in range(length)), greedy(12)) for length in (4, 8, 9, 15, 16, 17, 31)]
    engine = engine_of(tiny_model, 256, caching=True)
    add(engine, asks)
    assert alone.differences(asks, run(engine)) == []
    assert engine.metrics.num_cached_tokens == 0
    add(engine, asks, len(asks))
    outputs = engine.step()
    expected = sum((len(ask.prompt) - 1) // 4 * 4 for ask in asks)  # of 8 tokens 4, for one block is always left
    assert engine.metrics.num_cached_tokens == expected
    assert engine.metrics.cache_hit_rate == expected / (2 * sum(len(ask.prompt) for ask in asks))
    assert len(outputs) == len(asks)
    assert alone.differences(asks, run(engine), len(asks)) == []


@pytest.mark.parametrize("block_size", POOL)
@pytest.mark.parametrize("caching", [False, True])
def test_branches_with_room_for_all(tiny_model: LoadedModel, alone: Alone, caching: bool, block_size: int):
    """Branch i of a request with seed s is the request with seed s + i, whoever runs beside it."""
    asks = workload(11, branches=True)
    engine = engine_of(tiny_model, 2048 // block_size, block_size=block_size, caching=caching)
    steps = record_steps(engine)
    add(engine, asks)
    assert alone.differences(asks, run(engine)) == []
    assert engine.metrics.num_preemptions == 0
    assert block_size == 1 or any(step.blocks_to_copy for step in steps)
    assert_nothing_is_left(engine)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("mode", [None, *MODES])
def test_branches_in_a_pool_that_runs_full(
    tiny_model: LoadedModel, alone: Alone, mode: str | None, caching: bool, seed: int
):
    """Groups of one, two and three branches make room for one another: several at once by swap alone."""
    asks = workload(20 + seed, branches=True)
    engine = engine_of(tiny_model, 26, 400, mode=mode, caching=caching)
    steps = record_steps(engine)
    add(engine, asks)
    assert alone.differences(asks, run(engine)) == []
    assert engine.metrics.num_preemptions >= 5
    assert engine.metrics.bytes_swapped_out > 0
    assert any(step.blocks_to_copy for step in steps)
    assert_nothing_is_left(engine)


@pytest.mark.parametrize("mode", [None, "swap"])
def test_equal_branches_share_what_they_write(tiny_model: LoadedModel, alone: Alone, mode: str | None):
    """Greedy branches of one prompt, caching on: what fills their blocks is the same, and so is the block."""
    asks = [Ask(tuple(range(50 + index, 50 + index + length)), greedy(14, n=3)) for index, length in enumerate((3, 6))]
    engine = engine_of(tiny_model, 12, 60, caching=True, mode=mode, max_model_len=48)
    steps = record_steps(engine)
    add(engine, asks)
    assert alone.differences(asks, run(engine)) == []
    targets = [[target for _, target in step.blocks_to_copy] for step in steps]
    assert any(len(set(step)) < len(step) for step in targets)
    assert_nothing_is_left(engine)


def test_a_block_given_back_by_one_group_and_taken_by_the_next(tiny_model: LoadedModel, alone: Alone):
    """Both come back in one step, and the first leaves a block for one that holds the same: the second gets it.

    Two pairs of that step's swap in name this block, and the second is the one that counts.
    """
    asks = workload(20, branches=True)
    engine = engine_of(tiny_model, 26, 400, mode="swap", caching=True)
    steps = record_steps(engine)
    add(engine, asks)
    assert alone.differences(asks, run(engine)) == []
    targets = [[target for _, target in step.blocks_to_swap_in] for step in steps]
    assert any(len(set(step)) < len(step) for step in targets)


def test_a_block_is_copied_before_another_group_may_have_it(tiny_model: LoadedModel, alone: Alone):
    """Two equal branches come back: one copies their block, the other leaves it for the copy, a third request gets it.

    A swap in comes before the copy, so within this step nobody may be swapped into that block.
    """
    asks = [
        Ask(tuple(range(100, 112)), greedy(3)),
        Ask((7, 8, 9), greedy(4, n=2)),
        Ask((3, 2, 1), greedy(4)),
    ]
    engine = engine_of(tiny_model, 5, 20, mode="swap", caching=True, max_model_len=20)
    steps = record_steps(engine)
    add(engine, asks)
    assert alone.differences(asks, run(engine)) == []
    assert any(step.blocks_to_swap_in and step.blocks_to_copy for step in steps)


def test_branches_draw_with_neighbouring_seeds(tiny_model: LoadedModel):
    """With a seed of the request's own, or with those that the engine gives: its seed, then one for each branch."""
    ask = Ask((9, 8, 7), sampled(10, 41, n=3))
    engine = engine_of(tiny_model, 64)
    add(engine, [ask, Ask(ask.prompt, replace(ask.params, seed=None)), Ask(ask.prompt, replace(ask.params, seed=None))])
    outputs = run(engine)
    add(engine, [Ask(ask.prompt, sampled(10, seed)) for seed in (41, 42, 43, 3, 4, 5, 6, 7, 8)], 3)
    singles = [tokens for output in run(engine).values() for tokens in tokens_of(output)]
    assert [tokens for output in outputs.values() for tokens in tokens_of(output)] == singles
    assert len({tuple(tokens) for tokens in singles}) == 9


@pytest.mark.parametrize("seed", range(24))
def test_random_lives(tiny_model: LoadedModel, alone: Alone, seed: int):
    """Requests come and are aborted at any time, in pools of any size: what is seen at any step is right.

    A request that ends before its time says why, and what it had until then is right, too.
    """
    rng = random.Random(seed)
    block_size = rng.choice([1, 2, 4, 8])
    num_gpu_blocks = rng.randint(40, 70) // block_size + 2
    engine = engine_of(
        tiny_model,
        num_gpu_blocks,
        rng.choice([0, num_gpu_blocks // 3, 200]),
        block_size=block_size,
        caching=bool(seed % 2),
        mode=rng.choice([None, "recompute", "swap"]),
        max_model_len=min(48, num_gpu_blocks * block_size),
        max_num_seqs=rng.choice([3, 6, 64]),
    )
    steps = record_steps(engine)
    asks = workload(seed // 2, num_requests=20, branches=True)
    finished, aborted, waiting = {}, set(), list(enumerate(asks))
    while waiting or engine.has_unfinished_requests():
        while waiting and rng.random() < 0.3:
            index, ask = waiting.pop(0)
            add(engine, [ask], index)
        if rng.random() < 0.03 and engine._requests:
            request_id = rng.choice(sorted(engine._requests))
            engine.abort_request(request_id)
            aborted.add(request_id)
        for output in engine.step():
            assert output.request_id not in aborted
            ask = asks[int(output.request_id)]
            well = output.finished and output.error is None
            for branch, tokens in enumerate(tokens_of(output)):
                limited = len(ask.prompt) + len(tokens) >= 48
                assert alone.difference(ask, branch, tokens, ended=well and not limited) is None
            if output.finished:
                assert {completion.finish_reason for completion in output.outputs} <= {"length", "abort"}
                finished[output.request_id] = output
    assert set(finished) | aborted == {str(index) for index in range(len(asks))}
    for output in finished.values():
        if output.error is not None:
            assert any(reason in output.error for reason in ("swap space", "the GPU pool holds", "max_model_len"))
    assert not any(step.blocks_to_swap_in and step.blocks_to_swap_out for step in steps)
    assert_nothing_is_left(engine)


SMOLLM2_PROMPTS = (
    "The capital of France is Paris. The capital of Italy is",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Greece is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a country far away, there lived a",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
)


@pytest.fixture(scope="module")
def smollm2_alone(smollm2_model: LoadedModel, dense_smollm2: DenseLlama) -> Alone:
    return Alone(smollm2_model, dense_smollm2)


@pytest.mark.parametrize(
    ("block_size", "num_gpu_blocks", "mode", "caching"),
    [
        (1, 1024, None, False),
        (4, 256, None, False),
        (16, 64, None, True),
        (32, 32, None, False),
        (4, 20, "recompute", False),
        (4, 20, "swap", False),
        (4, 20, "recompute", True),
        (4, 20, "swap", True),
    ],
)
def test_with_a_real_model(smollm2_model, smollm2_alone, block_size, num_gpu_blocks, mode, caching):
    """Greedy answers of SmolLM2; with caching two rounds, of which the second is the first again."""
    encode = smollm2_model.tokenizer.encode
    asks = [Ask(tuple(encode(text)), greedy(20)) for text in SMOLLM2_PROMPTS]
    engine = engine_of(
        smollm2_model, num_gpu_blocks, 200, block_size=block_size, mode=mode, caching=caching, max_model_len=80
    )
    for round_start in (0, len(asks))[: 1 + caching]:
        add(engine, asks, round_start)
        assert smollm2_alone.differences(asks, run(engine), round_start) == []
    assert (engine.metrics.num_preemptions > 0) == (mode is not None)
    assert (engine.metrics.cache_hit_rate > 0) == caching or mode == "swap"  # twenty blocks keep no prefix for long
    assert_nothing_is_left(engine)


def test_branches_with_a_real_model(smollm2_model, smollm2_alone):
    encode = smollm2_model.tokenizer.encode
    asks = [
        Ask(tuple(encode(SMOLLM2_PROMPTS[0])), sampled(12, 3, n=3, top_p=0.9)),
        Ask(tuple(encode(SMOLLM2_PROMPTS[4])), sampled(12, 5, n=2)),
        Ask(tuple(encode(SMOLLM2_PROMPTS[2])), greedy(12)),
    ]
    engine = engine_of(smollm2_model, 16, 60, caching=True)
    add(engine, asks)
    assert smollm2_alone.differences(asks, run(engine)) == []
    assert engine.metrics.bytes_swapped_in > 0
    assert_nothing_is_left(engine)
