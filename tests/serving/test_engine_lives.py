"""What happens to a request besides its tokens: it waits, is moved, gives up, is ended, and the engine keeps count."""

from __future__ import annotations

import random

import pytest
import torch
from engines import Alone, Ask, add, assert_nothing_is_left, engine_of, greedy, record_steps, run, sampled, tokens_of

from refimpl import LLM, SamplingParams, SequenceStatus
from refimpl.serving.weights import LoadedModel

PROMPT = tuple(range(30, 60))
BLOCK_BYTES = 3 * 2 * 4 * 2 * 8 * 4  # layers, keys and values, tokens, KV heads, head_dim, float32


def test_a_copy_reaches_every_layer(tiny_model: LoadedModel, alone: Alone):
    """A15. Two branches of a prompt that lacks one token of a block: the copy holds what the source holds."""
    ask = Ask(PROMPT[:3], sampled(4, 1, n=2))
    engine = engine_of(tiny_model, 16)
    add(engine, [ask])
    steps = record_steps(engine)
    engine.step()
    engine.step()
    ((source, target),) = steps[-1].blocks_to_copy
    blocks = engine.kv_cache.gpu
    assert torch.equal(blocks[:, :, target, :3], blocks[:, :, source, :3])
    assert blocks[:, :, target].abs().amin(dim=(-1, -2)).min() > 0
    assert not torch.equal(blocks[:, :, target, 3], blocks[:, :, source, 3])  # the tokens that tell them apart
    assert alone.differences([ask], run(engine)) == []


@pytest.mark.parametrize(("length", "cached"), [(8, 4), (4, 0), (9, 8), (5, 4), (1, 0)])
def test_a_prompt_that_is_cached_whole_leaves_something_to_compute(tiny_model, alone, monkeypatch, length, cached):
    """B02. One block at least, so that there are logits to draw from."""
    ask = Ask(PROMPT[:length], greedy(1))
    engine = engine_of(tiny_model, 16, caching=True)
    add(engine, [ask])
    run(engine)
    forward, computed = tiny_model.network.forward, []
    monkeypatch.setattr(
        tiny_model.network, "forward", lambda step, *rest: computed.append(step.num_tokens) or forward(step, *rest)
    )
    add(engine, [ask], 1)
    outputs = run(engine)
    assert computed == [length - cached]
    assert alone.differences([ask], outputs, 1) == []
    assert engine.metrics.num_cached_tokens == cached


@pytest.mark.parametrize("evicted", [False, True])
def test_hits_are_counted_when_a_request_is_admitted(tiny_model: LoadedModel, alone: Alone, evicted: bool):
    """B19. Two blocks are there while it waits, and gone when its turn comes: it computes all of its prompt."""
    first, waiting = Ask(PROMPT[:8], greedy(1)), Ask(PROMPT[:12], greedy(4))
    other = Ask(tuple(range(100, 129 if evicted else 121)), greedy(1))
    engine = engine_of(tiny_model, 8, caching=True, max_model_len=32)
    add(engine, [first])
    run(engine)
    add(engine, [other, waiting], 1)
    engine.step()
    assert [group.request_id for group in engine.scheduler.waiting] == ["2"]
    assert alone.differences([waiting], run(engine), 2) == []
    assert engine.metrics.num_cached_tokens == (0 if evicted else 8)


def test_prompt_logprobs_are_not_offered():
    """B21. With a cached prefix there are no logits for it; the option does not exist, with caching and without."""
    with pytest.raises(TypeError, match="prompt_logprobs"):
        SamplingParams(prompt_logprobs=1)


def test_sixteen_prompts_twice_with_caching_and_without(tiny_model: LoadedModel, monkeypatch):
    """B23. The tokens of both rounds, and the logits of the first token within 1e-5 of the largest of them."""
    rng = random.Random(8)
    asks = [Ask(tuple(rng.randrange(320) for _ in range(rng.randint(1, 40))), greedy(8)) for _ in range(16)]
    forward, logits = tiny_model.network.forward, []
    monkeypatch.setattr(
        tiny_model.network, "forward", lambda step, *rest: logits.append(forward(step, *rest)) or logits[-1]
    )
    answers, first_logits = [], []
    for caching in (False, True):
        engine = engine_of(tiny_model, 400, caching=caching)
        for start in (0, 16):
            logits.clear()
            add(engine, asks, start)
            answers.append([tokens_of(output) for output in run(engine).values()])
            first_logits.append(logits[0])
        assert (engine.metrics.num_cached_tokens > 0) == caching
    assert answers[1:] == answers[:1] * 3
    for others in first_logits[1:]:
        torch.testing.assert_close(others, first_logits[0], rtol=0, atol=1e-5 * float(first_logits[0].abs().max()))


def test_an_ignored_request_comes_back(tiny_model: LoadedModel, tiny_folder):
    """C02. One finished output without a token and with the reason; nothing is left; the others keep their places."""
    engine = engine_of(tiny_model, 4, max_model_len=16)
    add(engine, [Ask(PROMPT[:17], greedy(4))])
    (output,) = engine.step()
    assert (output.finished, output.outputs[0].finish_reason, output.outputs[0].token_ids) == (True, "length", [])
    assert output.error == "the prompt has 17 tokens, max_model_len is 16"
    assert_nothing_is_left(engine)
    llm = LLM(tiny_folder, block_size=4, num_gpu_blocks_override=4, max_model_len=16)
    prompts = [{"prompt_token_ids": list(PROMPT[:length])} for length in (17, 3)]
    ignored, fine = llm.generate(prompts, greedy(2))
    assert (ignored.error is None, len(ignored.outputs[0].token_ids)) == (False, 0)
    assert (fine.error, len(fine.outputs[0].token_ids)) == (None, 2)


def test_a_group_with_a_finished_branch_makes_room_by_recompute(tiny_model: LoadedModel, alone: Alone):
    """C16. The branch that still runs is dropped, prefilled again and finishes; its sibling stays as it ended."""
    first, ends_at = Ask(PROMPT[:7], greedy(9)), None
    for seed in range(50):  # a seed of which the two branches part with their first tokens
        one, other = (
            alone.answer(Ask(PROMPT[10:17], sampled(6, seed))),
            alone.answer(Ask(PROMPT[10:17], sampled(6, seed + 1))),
        )
        if one[0] not in other and other[0] != one[0]:
            ends_at = one[0]
            break
    group = Ask(PROMPT[10:17], sampled(6, seed, n=2, stop_token_ids=[ends_at]))
    engine = engine_of(tiny_model, 5, max_model_len=20)
    engine.block_manager.watermark_blocks = 0
    add(engine, [first, group])
    steps = record_steps(engine)
    outputs = run(engine)
    assert [decision.action for step in steps for decision in step.decisions].count("recompute") >= 1
    assert not any(step.blocks_to_swap_out for step in steps)
    assert alone.differences([first], outputs) == []
    assert tokens_of(outputs["1"]) == [one[:1], other]
    assert [completion.finish_reason for completion in outputs["1"].outputs] == ["stop", "length"]
    assert_nothing_is_left(engine)


@pytest.mark.parametrize("queue", ["waiting", "running", "swapped"])
def test_a_request_is_aborted_in_every_queue(tiny_model: LoadedModel, alone: Alone, queue: str):
    """Two branches or one, on the GPU, on the CPU or nowhere yet: it is gone, and the others go on as ever."""
    asks = [Ask(PROMPT[:8], greedy(12)), Ask(PROMPT[3:11], sampled(4, 4, n=2)), Ask(PROMPT[5:9], greedy(9))]
    engine = engine_of(tiny_model, 7, 20, mode="swap", max_model_len=28)
    add(engine, asks)
    for _ in range(200):
        engine.step()
        groups = [group.request_id for group in getattr(engine.scheduler, queue)]
        if groups and (queue != "running" or engine.metrics.num_generated_tokens > 4):
            break
        if queue == "waiting" and not groups:
            add(engine, [Ask(PROMPT[:25], greedy(2))], 3)
            groups = ["3"]
            break
    assert groups
    victim = groups[-1]
    engine.abort_request(victim)
    assert victim not in engine._requests
    outputs = run(engine)
    assert victim not in outputs
    for index, ask in enumerate(asks):
        if str(index) != victim and str(index) in outputs:
            assert alone.differences([ask], outputs, index) == []
    engine.abort_request(victim)
    assert_nothing_is_left(engine)


def test_too_little_swap_space_ends_one_request_and_says_how_much(tiny_model: LoadedModel, alone: Alone):
    """Two groups of two branches, and three blocks to swap to: the second needs five."""
    asks = [Ask(PROMPT[:8], sampled(8, 1, n=2)), Ask(PROMPT[8:21], sampled(8, 5, n=2)), Ask(PROMPT[3:6], greedy(3))]
    engine = engine_of(tiny_model, 10, 3, max_model_len=40)
    add(engine, asks)
    outputs = run(engine)
    assert outputs["1"].error == (
        "request 1 had to make room, and its 5 blocks do not fit the 3 that are free of the 3 blocks of swap space: "
        "raise swap_space"
    )
    assert {completion.finish_reason for completion in outputs["1"].outputs} == {"abort"}
    for branch, tokens in enumerate(tokens_of(outputs["1"])):
        assert alone.difference(asks[1], branch, tokens, ended=False) is None
    assert alone.differences([asks[0]], outputs) == []
    assert alone.differences([asks[2]], outputs, 2) == []
    assert_nothing_is_left(engine)


def test_a_swapped_request_that_cannot_come_back_says_why(tiny_model: LoadedModel):
    """It filled the pool but for the block that its next token would need."""
    asks = [Ask(PROMPT[:4], greedy(5)), Ask(PROMPT[:11], greedy(5))]
    engine = engine_of(tiny_model, 4, 20, mode="swap", max_model_len=16)
    add(engine, asks)
    for _ in range(2):
        engine.step()
    engine.block_manager.watermark_blocks = 1
    outputs = run(engine)
    assert outputs["1"].error.startswith(
        "the prompt with its answer so far needs 3 blocks and 1 to grow into, the GPU pool holds 4 and keeps 1 free"
    )
    assert outputs["0"].error is None
    assert_nothing_is_left(engine)


@pytest.mark.parametrize("mode", ["swap", "recompute"])
@pytest.mark.parametrize("caching", [False, True])
def test_metrics_equal_a_count_of_ones_own(tiny_model: LoadedModel, mode: str, caching: bool):
    """Every field at every step, counted from what the scheduler decided and what was given back."""
    rng = random.Random(3)
    asks = [Ask(PROMPT[: rng.randint(1, 12)], sampled(9, i, n=1 + i % 2)) for i in range(12)]
    engine = engine_of(tiny_model, 16, 60, mode=mode, caching=caching, max_num_seqs=6)
    schedule, metadata = engine.scheduler.schedule, []

    def recording(now: float | None = None):
        decided = schedule(now)
        metadata.append(decided[0])
        return decided

    engine.scheduler.schedule = recording
    steps = record_steps(engine)
    add(engine, asks)
    assert engine.metrics.step == 0
    known = dict.fromkeys(range(len(asks)), 0)  # tokens of each request that have been given back
    prompt_tokens = cached_tokens = 0
    while engine.has_unfinished_requests():
        outputs = engine.step()
        before = sum(known.values())
        known |= {int(out.request_id): sum(len(tokens) for tokens in tokens_of(out)) for out in outputs}
        for data in metadata[-1]:
            if data.is_prompt:
                prompt_tokens += data.token_chunk_size
                cached_tokens += 4 * len(data.computed_block_nums)
        metrics, manager, scheduler = engine.metrics, engine.block_manager, engine.scheduler
        assert metrics.step == len(steps)
        assert metrics.num_waiting == sum(group.get_seqs(SequenceStatus.WAITING) != [] for group in scheduler.waiting)
        assert (metrics.num_running, metrics.num_swapped) == (len(scheduler.running), len(scheduler.swapped))
        assert metrics.num_running + metrics.num_waiting + metrics.num_swapped == len(engine._requests)
        in_tables = {
            device: {
                block.block_number
                for table in manager.block_tables.values()
                for block in table
                if block.device.name == device
            }
            for device in ("GPU", "CPU")
        }
        assert metrics.num_free_gpu_blocks == 16 - len(in_tables["GPU"])
        assert metrics.num_free_cpu_blocks == 60 - len(in_tables["CPU"])
        assert (metrics.num_prompt_tokens, metrics.num_cached_tokens) == (prompt_tokens, cached_tokens)
        assert metrics.cache_hit_rate == cached_tokens / prompt_tokens
        assert metrics.num_generated_tokens == sum(known.values())
        assert metrics.step_tokens == sum(known.values()) - before
        assert metrics.num_preemptions == sum(step.preempted for step in steps)
        assert metrics.bytes_swapped_out == BLOCK_BYTES * sum(len(step.blocks_to_swap_out) for step in steps)
        assert metrics.bytes_swapped_in == BLOCK_BYTES * sum(len(step.blocks_to_swap_in) for step in steps)
        assert metrics.step_seconds > 0
        assert metrics.tokens_per_second == metrics.step_tokens / metrics.step_seconds
    assert metrics.num_preemptions >= 3
    assert metrics.bytes_swapped_out == metrics.bytes_swapped_in
    assert metrics.bytes_swapped_out > 0 or mode == "recompute"
    assert (metrics.num_cached_tokens > 0) == caching


def test_final_only_gives_back_what_has_ended(tiny_model: LoadedModel):
    asks = [Ask(PROMPT[:3], greedy(2)), Ask(PROMPT[:17], greedy(2)), Ask(PROMPT[4:9], greedy(4))]
    engine = engine_of(tiny_model, 16, max_model_len=16)
    add(engine, asks)
    given = []
    while engine.has_unfinished_requests():
        given.append([output.request_id for output in engine.step(final_only=True)])
    assert given == [["1"], ["0"], [], ["2"]]
    assert_nothing_is_left(engine)
