"""How a step is cut, and how large its parts are made."""

import pytest
import torch
from engines import engine_of

from refimpl import KVCache, SamplingParams, Sequence
from refimpl.serving import engine as engine_module
from refimpl.serving.model_runner import padded_rows, prepare_step


def test_steps_come_in_few_sizes_and_waste_little():
    """oneDNN keeps up to 2 MiB for each size and product; every prompt length up to 1024 would be gigabytes."""
    sizes = [padded_rows(count) for count in range(1, 1025)]
    assert len(set(sizes)) == 109
    assert sizes == sorted(sizes)
    assert all(count <= size < count * 17 / 16 + 1 for count, size in enumerate(sizes, 1) if count >= 4)


def test_a_decode_of_few_sequences_is_padded_to_four():
    assert [padded_rows(count) for count in range(1, 33)] == [4, 4, 4, *range(4, 33)]
    assert padded_rows(64) == 64


PREFIX = list(range(20, 20 + 40))


@pytest.fixture
def sizes(tiny_model, monkeypatch):
    """New tokens of each forward pass."""
    seen, forward = [], type(tiny_model.network).forward

    def counting(network, step, *rest):
        seen.append(step.num_tokens)
        return forward(network, step, *rest)

    monkeypatch.setattr(type(tiny_model.network), "forward", counting)
    return seen


def first_tokens(model, prompts, max_tokens=1, **options):
    """An engine that has computed all prompts in one step, and the token behind each."""
    engine = engine_of(model, 400, 500, max_model_len=128, **options)
    for index, prompt in enumerate(prompts):
        engine.add_request(
            str(index), {"prompt_token_ids": prompt}, SamplingParams(temperature=0, max_tokens=max_tokens)
        )
    return engine, [output.outputs[0].token_ids for output in engine.step()]


def test_what_one_prompt_of_a_step_has_computed_another_skips(tiny_model, sizes):
    """Blocks of 4: the second finds 10 of them, the third 5, the fourth all but its last."""
    prompts = [[*PREFIX, 7], [*PREFIX, 8, 9], [*PREFIX[:23], 9], PREFIX, [5, 6, 7]]
    _, tokens = first_tokens(tiny_model, prompts, caching=True)
    assert sizes == [41, 2 + 4 + 4 + 3]
    sizes.clear()
    _, plain_tokens = first_tokens(tiny_model, prompts)
    assert sizes == [sum(map(len, prompts))]
    assert tokens == plain_tokens


def test_prompts_are_computed_a_few_at_a_time_and_decodes_together(tiny_model, sizes, monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_TOKENS_AT_A_TIME", 50)
    prompts = [[5] * 30, [6] * 21, [7] * 10, [8] * 19, [9] * 70, [3], [4] * 2]
    engine, _ = first_tokens(tiny_model, prompts, max_tokens=3)
    assert sizes == [30, 21 + 10 + 19, 70 + 1, 2]
    sizes.clear()
    monkeypatch.setattr(engine_module, "MAX_TOKENS_AT_A_TIME", 3)
    engine.step()
    assert sizes == [7]


def test_a_table_that_is_too_short_is_refused_beside_a_longer_one():
    """Padded to the longest, it would name block 0, which is somebody else's."""
    cache = KVCache(1, 8, 0, block_size=2, num_kv_heads=1, head_dim=2, dtype=torch.float32, device="cpu")
    seqs = [Sequence(0, [7, 8, 9], 2), Sequence(1, [7, 8, 9], 2)]
    with pytest.raises(ValueError, match="position 2 has no slot: 1 blocks of 2 hold positions 0 to 1"):
        prepare_step(seqs, [[5, 1], [3]], cache)
