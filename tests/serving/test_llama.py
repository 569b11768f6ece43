"""The model is the model: the tokens of transformers, and the keys and values of a dense forward pass."""

from __future__ import annotations

import json

import pytest
import torch
from dense_llama import DenseLlama
from engines import DATA

from refimpl import LLM, SamplingParams


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def tokens_of(llm: LLM, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], greedy(max_tokens))
    return [output.outputs[0].token_ids for output in outputs]


def test_greedy_tokens_equal_those_of_transformers(recorded):
    """Ten prompts at once, of lengths around the block boundaries, each as transformers answers it alone."""
    llm, recording = recorded
    prompts = [answer["prompt_token_ids"] for answer in recording["answers"]]
    assert {15, 16, 17} <= {len(prompt) for prompt in prompts}
    expected = [answer["output_token_ids"] for answer in recording["answers"]]
    assert tokens_of(llm, prompts, len(expected[0])) == expected


def test_a_thousand_greedy_tokens_equal_those_of_transformers(smollm2: LLM):
    """Token for token; or up to the first two tokens that tie, within 1e-4 in transformers' own logits."""
    recording = json.loads((DATA / "smollm2_long.json").read_text(encoding="utf-8"))
    expected = recording["output_token_ids"]
    (ours,) = tokens_of(smollm2, [recording["prompt_token_ids"]], 1000)
    assert len(ours) == len(expected) == len(recording["gaps"]) == 1000
    different = [where for where, pair in enumerate(zip(ours, expected, strict=True)) if pair[0] != pair[1]]
    assert not different or recording["gaps"][different[0]] <= 1e-4, f"token {different[0]} is another, and no tie"


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_cached_keys_and_values_equal_a_dense_forward_pass(name, request):
    """Every layer, head and position, position 0 included, read back through the block tables of a running batch."""
    llm: LLM = request.getfixturevalue(name)
    dense: DenseLlama = request.getfixturevalue(f"dense_{name}")
    engine = llm.llm_engine
    engine.kv_cache.gpu.fill_(float("nan"))
    prompts = [list(range(100, 100 + length)) for length in (1, 15, 16, 21)]
    for index, prompt in enumerate(prompts):
        engine.add_request(f"kv-{index}", {"prompt_token_ids": prompt}, greedy(20))
    outputs = [engine.step() for _ in range(4)][-1]
    for output in outputs:
        tokens = output.prompt_token_ids + output.outputs[0].token_ids
        cached = engine.kv_cache.gpu[:, :, output.outputs[0].block_table].flatten(2, 3)[:, :, : len(tokens) - 1]
        keys, values, logits = dense.forward(tokens[:-1])
        keys = keys.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)  # what turns together lies together in ours
        all_keys = cached[:, 0].flatten(0, 2)
        assert len(all_keys.unique(dim=0)) == len(all_keys)  # so that none can stand in for another
        for ours, theirs in zip((cached[:, 0], cached[:, 1]), (keys, values), strict=True):
            torch.testing.assert_close(ours.double(), theirs, atol=5e-4, rtol=1e-4)
        assert tokens[len(output.prompt_token_ids) :] == logits.argmax(-1)[len(output.prompt_token_ids) - 1 :].tolist()
        engine.abort_request(output.request_id)
    engine.kv_cache.gpu.zero_()
    assert not engine.has_unfinished_requests()


def test_what_unused_slots_hold_does_not_matter(tiny_folder):
    """D01, through the whole model: a cache full of NaN gives the tokens of a fresh one."""
    prompts = [[7], list(range(50, 66)), list(range(30))]
    llm = LLM(tiny_folder, num_gpu_blocks_override=64)
    expected = tokens_of(llm, prompts, 20)
    llm.llm_engine.kv_cache.gpu.fill_(float("nan"))
    assert tokens_of(llm, prompts, 20) == expected


@pytest.mark.parametrize("block_size", [1, 4, 32])
def test_block_size_changes_no_token(tiny, tiny_folder, block_size):
    prompts = [[5], list(range(40, 55)), list(range(90, 106)), list(range(33))]
    assert tokens_of(
        LLM(tiny_folder, block_size=block_size, num_gpu_blocks_override=4096 // block_size), prompts, 30
    ) == tokens_of(tiny, prompts, 30)


def test_a_batch_gives_the_tokens_of_each_prompt_alone(tiny):
    prompts = [[5], list(range(40, 55)), list(range(90, 106)), list(range(33))]
    alone = [tokens_of(tiny, [prompt], 30)[0] for prompt in prompts]
    assert tokens_of(tiny, prompts, 30) == alone
    assert tokens_of(tiny, prompts[::-1], 30) == alone[::-1]


@pytest.mark.parametrize("name", ["tiny", "smollm2"])
def test_a_second_run_gives_the_same_tokens(name, request):
    """On the same engine, whose blocks hold what the first run left."""
    llm = request.getfixturevalue(name)
    prompts = [list(range(60, 77)), [300]]
    assert tokens_of(llm, prompts, 8) == tokens_of(llm, prompts, 8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_stays_close(tiny, tiny_folder, dtype):
    """The first token of a short prompt, where rounding has had no time to add up."""
    llm = LLM(tiny_folder, dtype=dtype, num_gpu_blocks_override=64)
    assert llm.llm_engine.kv_cache.gpu.dtype == getattr(torch, dtype)
    prompts = [[5], [40, 41, 42]]
    assert tokens_of(llm, prompts, 1) == tokens_of(tiny, prompts, 1)
