"""Chapter 10's account is right by itself, its tensors tell, and a machine without Triton is told so."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
import torch
from learners import chapter

from refimpl.checks import attention_account, steps
from refimpl.checks.attention_account import NAN, Paged, State, Tokens, merged, same
from refimpl.checks.attention_inputs import SCORES, SPARE_BLOCKS, in_a_row, in_blocks, numbered_cache
from refimpl.checks.attention_layouts import LAYOUTS
from refimpl.checks.engine import examine
from refimpl.device.plain_attention import attend


@pytest.mark.parametrize("kind", SCORES)
def test_the_account_is_what_torch_computes_in_double_precision(kind: str) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        sizes = rng.randint(0, 6), rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 4)
        tensors = [tensor.double() for tensor in in_a_row(*sizes, kind, seed)]
        scale = rng.choice((None, 0.3))
        output, lse = attend(*tensors, scale)
        query, keys, values = (tensor.tolist() for tensor in tensors)
        for head, state in enumerate(Tokens(query, keys, values, scale, sizes[1]).states()):
            assert state.output == pytest.approx(output[head].tolist())
            assert state.lse == pytest.approx(lse[head].item())


def test_what_right_code_loses_in_float32_is_far_below_the_tolerance() -> None:
    worst = 0.0
    for kind in SCORES:
        for seed in range(40):
            tensors = in_a_row(8, 2, 2, 4, kind, seed)
            exact, got = attend(*(tensor.double() for tensor in tensors)), attend(*tensors)
            for a, b in zip(exact, got, strict=True):
                worst = max(worst, float(((a - b).abs() / a.abs().clamp(min=1)).max()))
    assert worst < attention_account.TOLERANCE / 3


def test_merged_states_are_the_state_of_all() -> None:
    query, keys, values = (tensor.tolist() for tensor in in_a_row(7, 1, 2, 3, "usual", 5))
    tokens = Tokens(query, keys, values, None, 1)
    for cuts in ((0, 7), (0, 3, 7), (0, 0, 3, 3, 7)):
        parts = [tokens.part(a, b).states() for a, b in zip(cuts, cuts[1:], strict=False)]
        for head, whole in enumerate(tokens.states()):
            one = merged([part[head] for part in parts])
            assert one.output == pytest.approx(whole.output)
            assert one.lse == pytest.approx(whole.lse)
    assert merged([State([0.0], -torch.inf)] * 2) == State([0.0], -torch.inf)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_slot_without_a_token_holds_nan_and_every_token_is_found(layout: str) -> None:
    for seed in range(20):
        lens = [5, 0, 8]
        query, keys, values, tables, lengths = in_blocks(lens, 4, 2, 1, 2, seed=seed, layout=layout)
        assert len(keys) == 4 + SPARE_BLOCKS
        assert lengths.tolist() == lens
        for cache in (keys, values):
            filled = ~cache.isnan().any(dim=-1).any(dim=-1)
            assert int(filled.sum()) == sum(lens)
        setup = {"num_kv_heads": 2, "num_groups": 1, "num_dims": 2, "block_size": 4}
        paged = Paged(lens, setup, "usual", None, seed, layout)
        for seq, length in enumerate(lens):
            _, in_row, _ = in_a_row(length, 2, 1, 2, "usual", seed + seq)
            assert paged.tokens(seq).keys == in_row.tolist()
            assert not any(block == index for index, block in enumerate(tables[seq, : -(-length // 4)].tolist()))


def test_a_cache_of_numbers_has_the_slot_in_each_slot() -> None:
    for layout in LAYOUTS:
        cache = numbered_cache(3, 4, 2, 2, layout)
        torch.testing.assert_close(cache[2, 1], torch.tensor([[9.0, 9.01], [9.1, 9.11]]))


def test_numbers_agree_within_the_tolerance_alone() -> None:
    assert same([1.0, NAN], [1.0009, NAN])
    assert not same([1.0], [1.0011])
    assert not same([NAN], [1.0])
    assert not same([1.0], [NAN])
    assert same(2000.0, 2001.0)
    assert not same([[1.0]], [1.0])


SPOILT = {
    "one query head too far": lambda tokens: lambda head: min(head + 1, len(tokens.query) - 1) // tokens.group,
    "dealt out": lambda tokens: lambda head: head % tokens.num_kv_heads,
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_wrong_account_rejects_the_right_answer(monkeypatch: pytest.MonkeyPatch, spoilt: str) -> None:
    right = Tokens.states
    monkeypatch.setattr(Tokens, "states", lambda tokens, of=None: right(tokens, of or SPOILT[spoilt](tokens)))
    for exercise_id in ("10-gqa", "10-online-softmax", "10-merge"):
        step = steps()[exercise_id]
        result = examine(step, chapter("10").solution()[step.subject])
        assert result.outcome in ("wrong", "misconception"), exercise_id


def test_without_triton_the_kernel_is_not_attempted_and_nothing_breaks() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "from refimpl.checks import check\n"
        "from refimpl.device.plain_kernel import decode_kernel\n"
        "result = check('10-kernel', decode_kernel)\n"
        "print(result.outcome, repr(result))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    sentence, outcome = done.stdout.splitlines()
    assert sentence.startswith("10-kernel: not attempted — Triton is not installed here")
    assert outcome == "not attempted 0.0"


def test_the_chapters_steps_are_known_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from refimpl.checks.ch10_paged_attention import STEPS\n"
        "print(sum(step.points for step in STEPS))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 10
