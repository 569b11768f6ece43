"""When an answer ends, what its text is at every step, and how its tokens are drawn."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from dense_llama import DenseLlama
from engines import Ask, add, engine_of, greedy, run, sampled, tokens_of

from refimpl import LLM, LLMEngine, SamplingParams
from refimpl.serving.outputs import RequestOutput
from refimpl.serving.weights import LoadedModel

PROMPT = (10, 11, 12)


def every_step(engine: LLMEngine) -> list[RequestOutput]:
    """All that is given back, step by step, until nothing is left."""
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


def answer(model: LoadedModel, params: SamplingParams, **pool: object) -> list[RequestOutput]:
    engine = engine_of(model, 64, **pool)
    add(engine, [Ask(PROMPT, params)])
    return every_step(engine)


def test_a_stop_string_across_tokens_ends_the_answer_in_front_of_it(tiny_model: LoadedModel):
    """Short pieces of a long answer, wherever tokens begin in them: the answer ends before the first such piece."""
    whole = answer(tiny_model, greedy(60))[-1].outputs[0]
    decode = tiny_model.tokenizer.decode
    pieces = {whole.text[start : start + length] for start in range(0, len(whole.text) - 4, 2) for length in (2, 3, 4)}
    across_tokens = [
        piece
        for piece in sorted(pieces)
        if "\ufffd" not in piece and all(piece not in decode([token]) for token in whole.token_ids)
    ]
    assert len(across_tokens) >= 20
    for stop in across_tokens:
        outputs = answer(tiny_model, greedy(60, stop=stop))
        (last,) = outputs[-1].outputs
        assert (last.text, last.finish_reason, last.stop_reason) == (whole.text[: whole.text.index(stop)], "stop", stop)
        assert stop in decode(last.token_ids)
        assert stop not in decode(last.token_ids[:-1])
        for output in outputs:
            assert last.text.startswith(output.outputs[0].text)  # nothing was shown that had to be taken back


def test_the_stop_string_that_comes_first_counts(tiny_model: LoadedModel):
    text = answer(tiny_model, greedy(30))[-1].outputs[0].text
    early, late = text[4:6], text[9:12]
    (last,) = answer(tiny_model, greedy(30, stop=[late, "never seen", early]))[-1].outputs
    assert (last.text, last.stop_reason) == (text[: text.index(early)], early)
    (last,) = answer(tiny_model, greedy(30, stop="never seen"))[-1].outputs
    assert (last.text, last.finish_reason, last.stop_reason) == (text, "length", None)


def test_what_may_become_a_stop_string_is_held_back_until_it_cannot(tiny_model: LoadedModel):
    """Three characters of the answer and one that never comes: they are shown a step later, and not lost at the end."""
    texts = [output.outputs[0].text for output in answer(tiny_model, greedy(30))]
    for start in (0, len(texts[-1]) // 2, len(texts[-1]) - 3):
        stop = texts[-1][start : start + 3] + "\x00"
        shown = [output.outputs[0].text for output in answer(tiny_model, greedy(30, stop=stop))]
        begun = [max(size for size in range(4) if text.endswith(stop[:size])) for text in texts[:-1]]
        assert shown == [*(text[: len(text) - size] for text, size in zip(texts, begun, strict=False)), texts[-1]]
        assert any(begun)


def test_a_stop_token_ends_the_answer_and_is_part_of_it(tiny_model: LoadedModel):
    whole = answer(tiny_model, greedy(30))[-1].outputs[0].token_ids
    stop = whole[7]
    (last,) = answer(tiny_model, greedy(30, stop_token_ids=[999, stop]))[-1].outputs
    assert last.token_ids == whole[: whole.index(stop) + 1]
    assert (last.finish_reason, last.stop_reason) == ("stop", stop)
    assert last.text == tiny_model.tokenizer.decode(last.token_ids)


def test_the_models_end_token_ends_an_answer_unless_it_is_ignored(tiny_model: LoadedModel):
    """Of many sampled answers some come to token 2, the end of this model."""
    seeds = range(40)
    engine = engine_of(tiny_model, 800, max_num_seqs=80, max_model_len=512)
    add(engine, [Ask(PROMPT, sampled(200, seed, temperature=1.5)) for seed in seeds])
    going_on = [tokens for output in run(engine).values() for tokens in tokens_of(output)]
    with_end = [tokens for tokens in going_on if 2 in tokens]
    assert with_end
    assert all(len(tokens) == 200 for tokens in going_on)
    add(engine, [Ask(PROMPT, SamplingParams(max_tokens=200, seed=seed, temperature=1.5)) for seed in seeds])
    for tokens, output in zip(going_on, run(engine).values(), strict=True):
        ended = 2 in tokens
        assert tokens_of(output) == [tokens[: tokens.index(2) + 1] if ended else tokens]
        assert (output.outputs[0].finish_reason, output.outputs[0].stop_reason) == ("stop" if ended else "length", None)


@pytest.mark.parametrize(
    ("max_tokens", "max_model_len", "expected"), [(1, 64, 1), (9, 64, 9), (60, 20, 17), (60, 4, 1)]
)
def test_an_answer_ends_at_the_first_limit(tiny_model, max_tokens: int, max_model_len: int, expected: int):
    (last,) = answer(tiny_model, greedy(max_tokens), max_model_len=max_model_len)[-1].outputs
    assert (len(last.token_ids), last.finish_reason) == (expected, "length")


def test_a_stop_on_the_last_token_is_a_stop(tiny_model: LoadedModel):
    whole = answer(tiny_model, greedy(8))[-1].outputs[0]
    first = whole.token_ids.index(whole.token_ids[-1]) + 1
    (last,) = answer(tiny_model, greedy(first, stop_token_ids=[whole.token_ids[-1]]))[-1].outputs
    assert last.finish_reason == "stop"


def test_branches_end_apart_and_their_texts_only_grow(tiny_model: LoadedModel):
    """Each at a stop string or a limit of its own; a branch that has ended stays as it was."""
    outputs = answer(tiny_model, sampled(40, 5, n=4, stop=["e", "o"]), caching=True)
    final = outputs[-1].outputs
    assert len({len(completion.token_ids) for completion in final}) >= 3
    for before, after in pairwise(outputs):
        for early, late in zip(before.outputs, after.outputs, strict=True):
            assert late.text.startswith(early.text)
            assert late.token_ids[: len(early.token_ids)] == early.token_ids
            if early.finish_reason is not None:
                assert (late.text, late.token_ids, late.finish_reason) == (
                    early.text,
                    early.token_ids,
                    early.finish_reason,
                )
    assert [completion.index for completion in final] == [0, 1, 2, 3]
    assert not outputs[-2].finished
    assert outputs[-1].finished
    for completion in final:
        whole = tiny_model.tokenizer.decode(completion.token_ids)
        if completion.stop_reason is not None:
            whole = whole[: min(whole.index(stop) for stop in "eo" if stop in whole)]
        assert completion.text == whole


def test_characters_over_several_tokens_appear_whole(tiny_model: LoadedModel):
    """Random bytes: the replacement character is shown only where nothing can make a character of it any more."""
    outputs = answer(tiny_model, sampled(60, 2, temperature=3.0))
    texts = [output.outputs[0].text for output in outputs]
    assert any("\ufffd" in text for text in texts)
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert texts[-1] == tiny_model.tokenizer.decode(outputs[-1].outputs[0].token_ids)


def draw(logits: torch.Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    """One token, worked out in another way than `sampling.py` does: kept tokens by a loop, in float64."""
    probabilities = (logits / params.temperature).softmax(-1)
    order = sorted(range(len(probabilities)), key=lambda token: -float(probabilities[token]))
    kept, total = [], 0.0
    for token in order:
        if kept and total >= params.top_p:
            break
        kept.append(token)
        total += float(probabilities[token])
    weights = torch.zeros(len(order))
    weights[: len(kept)] = probabilities[kept].float()
    return order[int(torch.multinomial(weights, 1, generator=generator))]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 0.9), (1.3, 0.5)])
def test_sampled_branches_equal_draws_from_the_dense_model(
    tiny_model: LoadedModel, dense_tiny: DenseLlama, temperature: float, top_p: float
):
    params = sampled(10, 123, n=3, temperature=temperature, top_p=top_p)
    for branch, completion in enumerate(answer(tiny_model, params)[-1].outputs):
        generator = torch.Generator().manual_seed(123 + branch)
        tokens = list(PROMPT)
        for _ in range(10):
            tokens.append(draw(dense_tiny.forward(tokens)[2][-1], params, generator))
        assert completion.token_ids == tokens[len(PROMPT) :]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("pool", [{}, {"caching": True, "num_cpu_blocks": 200, "mode": "swap", "max_model_len": 40}])
def test_the_best_answers_are_the_likeliest(tiny_model, dense_tiny: DenseLlama, pool: dict, temperature: float):
    """best_of: of five candidates, each of which runs alone, too, the three of the largest sum of log probabilities."""
    params = sampled(12, 50, n=3, best_of=5, temperature=temperature)
    engine = engine_of(tiny_model, 26 if pool else 64, **pool)
    add(engine, [Ask(PROMPT, params), Ask(PROMPT[:2], params)])
    outputs = run(engine)
    if pool:
        assert engine.metrics.bytes_swapped_out > 0
    for prompt, output in zip((PROMPT, PROMPT[:2]), outputs.values(), strict=True):
        single = engine_of(tiny_model, 64)
        add(single, [Ask(prompt, sampled(12, 50 + branch, temperature=temperature)) for branch in range(5)])
        candidates = [tokens for one in run(single).values() for tokens in tokens_of(one)]
        logprobs = []
        for tokens in candidates:
            logits = dense_tiny.forward([*prompt, *tokens[:-1]])[2][len(prompt) - 1 :] / temperature
            logprobs.append(float(logits.log_softmax(-1)[torch.arange(len(tokens)), tokens].sum()))
        ranked = sorted(range(5), key=lambda branch: -logprobs[branch])
        assert tokens_of(output) == [candidates[branch] for branch in ranked[:3]]
        assert [completion.index for completion in output.outputs] == [0, 1, 2]


def test_more_candidates_than_answers_show_only_the_answers(tiny_model: LoadedModel):
    outputs = answer(tiny_model, sampled(6, 1, n=1, best_of=3))
    assert all(len(output.outputs) == 1 for output in outputs)
    assert outputs[-1].finished


def test_a_progress_bar_appears_when_asked_for(tiny: LLM, monkeypatch):
    bars = []

    class Bar:
        def __init__(self, **options: object) -> None:
            self.options, self.count = options, 0
            bars.append(self)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self) -> None:
            self.count += 1

    monkeypatch.setattr("refimpl.serving.llm.tqdm", Bar)
    prompts = [{"prompt_token_ids": [token]} for token in (5, 6, 7)]
    tiny.generate(prompts, greedy(2))
    tiny.generate(prompts, greedy(2), use_tqdm=False)
    assert [(bar.options["total"], bar.options["delay"], bar.options["disable"], bar.count) for bar in bars] == [
        (3, 3.0, False, 3),
        (3, 3.0, True, 3),
    ]
