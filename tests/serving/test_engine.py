"""Many requests through one block manager: admission, growth, limits, and what is left when they are done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from refimpl import LLM, CacheConfig, LLMEngine, SamplingParams, SchedulerConfig
from refimpl.serving.outputs import RequestOutput
from refimpl.serving.sampling import SAMPLING_EPS, sample
from refimpl.serving.weights import LoadedModel

GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)


def ids(prompt: list[int]) -> dict[str, list[int]]:
    return {"prompt_token_ids": prompt}


@pytest.fixture(scope="module")
def loaded(tiny_model: LoadedModel) -> LoadedModel:
    return tiny_model


def engine_of(loaded: LoadedModel, num_gpu_blocks: int, max_model_len: int = 64, **limits: int) -> LLMEngine:
    return LLMEngine(
        loaded,
        CacheConfig(block_size=4, num_gpu_blocks=num_gpu_blocks),
        SchedulerConfig(max_model_len=max_model_len, **limits),
    )


def run(engine: LLMEngine) -> list[list[str]]:
    """Step until nothing is left. Returns the ids of the requests that each step moved."""
    moved = []
    while engine.has_unfinished_requests():
        moved.append([output.request_id for output in engine.step()])
    return moved


def outputs_of(engine: LLMEngine) -> list[RequestOutput]:
    """Step until nothing is left. Returns everything that was given back, in its order."""
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


def test_outputs_carry_the_names_of_vllm(tiny):
    (output,) = tiny.generate("two words", SamplingParams(temperature=0, max_tokens=3))
    assert (output.prompt, output.finished, output.error) == ("two words", True, None)
    assert output.prompt_token_ids == tiny.get_tokenizer().encode("two words")
    (completion,) = output.outputs
    assert completion.index == 0
    assert completion.text == tiny.get_tokenizer().decode(completion.token_ids)
    assert (len(completion.token_ids), completion.finish_reason) == (3, "length")
    assert tiny.generate(ids([5]), GREEDY)[0].prompt is None


def test_outputs_come_in_the_order_of_the_prompts(tiny):
    """Though the second finishes first; each with sampling parameters of its own."""
    params = [SamplingParams(temperature=0, max_tokens=count, ignore_eos=True) for count in (9, 2, 5)]
    outputs = tiny.generate([ids([5]), ids([6]), ids([7])], params)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [9, 2, 5]
    assert [output.prompt_token_ids for output in outputs] == [[5], [6], [7]]
    assert [int(output.request_id) for output in outputs] == sorted(int(output.request_id) for output in outputs)
    with pytest.raises(ValueError, match="3 prompts and 2 sampling_params"):
        tiny.generate([ids([5])] * 3, params[:2])


def test_every_block_comes_back(tiny):
    manager = tiny.llm_engine.block_manager
    tiny.generate([ids([5] * length) for length in (1, 15, 16, 17)], GREEDY)
    assert manager.get_num_free_gpu_blocks() == manager.num_total_gpu_blocks
    assert manager.block_tables == {}


def test_text_streams_and_only_grows(loaded):
    engine = engine_of(loaded, 16)
    engine.add_request("a", ids([10, 11]), GREEDY)
    texts, tables = [""], [[]]
    while engine.has_unfinished_requests():
        (output,) = engine.step()
        texts.append(output.outputs[0].text)
        tables.append(output.outputs[0].block_table)
    assert all(after.startswith(before) for before, after in zip(texts, texts[1:], strict=False))
    assert texts[-1] == loaded.tokenizer.decode(output.outputs[0].token_ids)
    assert len(set(texts)) > 20
    assert all(after[: len(before)] == before for before, after in zip(tables, tables[1:], strict=False))
    assert [len(table) for table in tables[1:6]] == [1, 1, 1, 2, 2]


def test_a_token_of_the_models_end_stops_an_answer(tiny, tiny_folder, tmp_path):
    expected = tiny.generate(ids([5]), GREEDY)[0].outputs[0].token_ids
    end = expected[6]
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": [2, end]}))
    llm = LLM(folder, num_gpu_blocks_override=16)
    completion = llm.generate(ids([5]), SamplingParams(temperature=0, max_tokens=40))[0].outputs[0]
    assert completion.token_ids == expected[: expected.index(end) + 1]
    assert completion.finish_reason == "stop"
    assert llm.generate(ids([5]), GREEDY)[0].outputs[0].token_ids == expected


@pytest.mark.parametrize("prompt_len", [1, 10, 12])
def test_a_sequence_ends_at_max_model_len(loaded, prompt_len):
    engine = engine_of(loaded, num_gpu_blocks=3, max_model_len=12)
    engine.add_request("a", ids(list(range(20, 20 + prompt_len))), GREEDY)
    output = outputs_of(engine)[-1]
    assert output.outputs[0].finish_reason == "length"
    assert len(output.outputs[0].token_ids) == max(12 - prompt_len, 1)


def test_max_model_len_beyond_the_pool_is_refused(loaded):
    """F17: four blocks of four tokens hold a sequence of 16 and none of 17."""
    engine_of(loaded, num_gpu_blocks=4, max_model_len=16)
    with pytest.raises(ValueError, match=r"max_model_len is 17, the GPU pool holds 16 tokens \(4 blocks of 4\)"):
        engine_of(loaded, num_gpu_blocks=4, max_model_len=17)
    with pytest.raises(ValueError, match="max_model_len is 513, the model has positions for 512"):
        engine_of(loaded, num_gpu_blocks=400, max_model_len=513)


def test_max_model_len_is_what_fits_when_left_out(tiny_folder):
    llm = LLM(tiny_folder, num_gpu_blocks_override=2)
    assert len(llm.generate(ids([5] * 30), GREEDY)[0].outputs[0].token_ids) == 2


def test_generate_leaves_nothing_behind_after_an_error(tiny_folder):
    llm = LLM(tiny_folder, num_gpu_blocks_override=2)
    with pytest.raises(ValueError, match="empty prompt"):
        llm.generate([ids([5]), ids([])], GREEDY)
    assert not llm.llm_engine.has_unfinished_requests()
    assert llm.llm_engine.block_manager.get_num_free_gpu_blocks() == 2
    assert len(llm.generate(ids([5] * 10), GREEDY)[0].outputs[0].token_ids) == 22


def test_requests_wait_in_order_and_none_overtakes(loaded):
    """The second needs more blocks than are free; the third would fit, and waits behind it."""
    engine = engine_of(loaded, num_gpu_blocks=7, max_model_len=28)
    short = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    for name, length in (("a", 9), ("b", 17), ("c", 1)):
        engine.add_request(name, ids([10] * length), short)
    assert run(engine) == [["a"], ["a"], ["a"], ["b", "c"], ["b", "c"], ["b", "c"]]


def test_no_more_than_max_num_seqs_run_at_once(loaded):
    engine = engine_of(loaded, num_gpu_blocks=20, max_num_seqs=2)
    for name in "abc":
        engine.add_request(name, ids([10]), SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
    assert run(engine) == [["a", "b"], ["a", "b"], ["c"], ["c"]]


def test_a_step_takes_no_more_prompt_tokens_than_it_may(loaded):
    engine = engine_of(loaded, num_gpu_blocks=40, max_num_batched_tokens=64, max_num_seqs=8)
    for name in "abc":
        engine.add_request(name, ids([10] * 30), SamplingParams(temperature=0, max_tokens=1))
    assert run(engine) == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("length", "message"),
    [(17, "the prompt has 17 tokens, max_model_len is 16"), (16, "the prompt needs 4 blocks, the GPU pool holds 4")],
)
def test_a_prompt_that_can_never_run_is_reported_and_the_next_one_runs(loaded, length, message):
    engine = engine_of(loaded, num_gpu_blocks=4, max_model_len=16)
    if length == 16:
        engine.block_manager.watermark_blocks = 1
    engine.add_request("long", ids([10] * length), GREEDY)
    engine.add_request("short", ids([10]), SamplingParams(temperature=0, max_tokens=1))
    long, short = engine.step()
    assert long.finished
    assert message in long.error
    assert (long.outputs[0].token_ids, long.outputs[0].finish_reason) == ([], "length")
    assert len(short.outputs[0].token_ids) == 1
    assert not engine.has_unfinished_requests()


@pytest.mark.parametrize(
    ("prompt", "params", "error", "message"),
    [
        ([], GREEDY, ValueError, "an empty prompt: it needs at least 1 token"),
        ([3, 320], GREEDY, ValueError, "token id 320 is not in the model's vocabulary, which ends at 319"),
        ([3, -1], GREEDY, ValueError, "token id at position 1 is -1"),
        ([3], SamplingParams(n=257), ValueError, "asks for 257 sequences, max_num_seqs is 256"),
    ],
)
def test_a_bad_request_is_refused_at_once(loaded, prompt, params, error, message):
    engine = engine_of(loaded, 8, max_model_len=32)
    with pytest.raises(error, match=message):
        engine.add_request("x", ids(prompt), params)
    assert not engine.has_unfinished_requests()


@pytest.mark.parametrize("seed", [-1, 2**64, 10**30])
def test_a_seed_beyond_64_bits_is_refused(loaded, seed):
    engine = engine_of(loaded, 8, max_model_len=32)
    with pytest.raises(ValueError, match=rf"seed is {seed}, it must be between 0 and {2**64 - 1}"):
        engine.add_request("x", ids([3]), SamplingParams(seed=seed))
    assert not engine.has_unfinished_requests()
    engine.add_request("x", ids([3]), SamplingParams(seed=2**64 - 1))


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_of_the_engine_leaves_room_for_the_requests(tiny_folder, seed):
    with pytest.raises(ValueError, match=rf"seed is {seed}, it must be between 0 and {2**32 - 1}"):
        LLM(tiny_folder, num_gpu_blocks_override=2, seed=seed)
    assert LLM(tiny_folder, num_gpu_blocks_override=2, seed=2**32 - 1).generate(ids([5]), SamplingParams(max_tokens=2))


@pytest.mark.parametrize("num_gpu_blocks", [10**12, 10**26])
def test_a_pool_beyond_memory_is_refused(loaded, num_gpu_blocks):
    """3 layers of 4 tokens, 2 heads of 8 float32 numbers, keys and values: 1536 bytes a block."""
    message = f"{num_gpu_blocks} blocks take {num_gpu_blocks * 1536} bytes, more than there is: lower num_gpu_blocks_o"
    with pytest.raises(ValueError, match=message):
        engine_of(loaded, num_gpu_blocks)


@pytest.mark.parametrize("prompt", [{"prompt": "text"}, [3, 4], 3, None])
def test_a_prompt_in_another_form_is_refused(loaded, prompt):
    engine = engine_of(loaded, 8, max_model_len=32)
    with pytest.raises(ValueError, match='a prompt is a text or {"prompt_token_ids"'):
        engine.add_request("x", prompt, GREEDY)


def test_an_id_in_use_is_refused_and_an_unknown_one_is_not_aborted(loaded):
    engine = engine_of(loaded, 8, max_model_len=32)
    engine.add_request("x", ids([3]), GREEDY)
    with pytest.raises(ValueError, match="request x is in use"):
        engine.add_request("x", ids([3]), GREEDY)
    engine.abort_request("y")
    assert engine.has_unfinished_requests()
    engine.abort_request("x")
    assert not engine.has_unfinished_requests()


def test_a_pool_of_unknown_size_is_refused(loaded, tiny_folder):
    with pytest.raises(ValueError, match="num_gpu_blocks is None"):
        LLMEngine(loaded, CacheConfig(), SchedulerConfig(max_model_len=16))
    with pytest.raises(ValueError, match="num_gpu_blocks_override is 0, it must be 1 or more"):
        LLM(tiny_folder, num_gpu_blocks_override=0)


def test_the_pool_takes_its_share_of_memory(tiny_folder):
    """0.001 of 1 GiB, at 3 layers of 16 tokens, 2 heads of 8 float32 numbers, keys and values."""
    llm = LLM(tiny_folder, gpu_memory_utilization=0.001)
    assert llm.llm_engine.block_manager.num_total_gpu_blocks == 2**30 // 1000 // (3 * 16 * 2 * 8 * 4 * 2)
    with pytest.raises(ValueError, match="a block of 16 tokens takes 6144 bytes, the cache has 5368"):
        LLM(tiny_folder, gpu_memory_utilization=0.000005)


def test_a_seed_repeats_a_random_answer_whatever_runs_beside_it(tiny):
    params = SamplingParams(temperature=1.0, top_p=0.9, max_tokens=12, seed=7, ignore_eos=True)
    alone = tiny.generate(ids([5]), params)[0].outputs[0].token_ids
    beside = tiny.generate([ids([9]), ids([5])], [SamplingParams(max_tokens=12), params])[1].outputs[0].token_ids
    assert beside == alone
    other = SamplingParams(temperature=1.0, top_p=0.9, max_tokens=12, seed=8, ignore_eos=True)
    assert tiny.generate(ids([5]), other)[0].outputs[0].token_ids != alone


def test_sampling_follows_the_distribution():
    """Of 4000 draws the shares come near the probabilities; top_p leaves out what is behind it."""
    logits = torch.tensor([0.1, 0.6, 0.3]).log()[None]
    for top_p, temperature, expected in [
        (1.0, 1.0, [0.1, 0.6, 0.3]),
        (0.7, 1.0, [0, 2 / 3, 1 / 3]),
        (0.5, 1.0, [0, 1, 0]),
    ]:
        generator = torch.Generator().manual_seed(0)
        params = [SamplingParams(temperature=temperature, top_p=top_p)]
        draws = torch.tensor([sample(logits, params, [generator])[0] for _ in range(4000)])
        shares = torch.bincount(draws, minlength=3) / 4000
        torch.testing.assert_close(shares, torch.tensor(expected, dtype=torch.float32), atol=0.03, rtol=0)


def test_temperature_sharpens_and_zero_takes_the_largest():
    logits = torch.tensor([[0.0, 1.0]])
    cold = [
        sample(logits, [SamplingParams(temperature=0.05)], [torch.Generator().manual_seed(i)])[0] for i in range(50)
    ]
    hot = [sample(logits, [SamplingParams(temperature=50)], [torch.Generator().manual_seed(i)])[0] for i in range(50)]
    assert cold == [1] * 50
    assert 10 < sum(hot) < 40
    assert sample(logits, [SamplingParams(temperature=0)], [torch.Generator()]) == [1]


@pytest.mark.parametrize("temperature", [5e-324, 1e-40, SAMPLING_EPS / 2, SAMPLING_EPS])
def test_a_temperature_next_to_zero_takes_the_largest(temperature):
    """Divided by it, such logits would be infinite."""
    logits = torch.tensor([[-1e4, 1e4, 9e3]])
    assert sample(logits, [SamplingParams(temperature=temperature)], [torch.Generator()]) == [1]


def test_a_top_p_next_to_zero_takes_the_largest():
    """float32 makes it 0, which no token would be inside of."""
    assert sample(torch.tensor([[0.0, 2.0, 1.0]]), [SamplingParams(top_p=1e-320)], [torch.Generator()]) == [1]
