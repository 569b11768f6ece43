"""Softmax in parts equals softmax over all of it, whatever the parts are and however they are put together."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from refimpl.device.online_softmax import merge_attention_states

INF = float("inf")


def state(scores: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Output [heads, dim] and lse [heads] of scores [heads, tokens] and values [tokens, heads, dim], in float64."""
    if not scores.shape[1]:
        return torch.zeros(values.shape[1:]), torch.full(values.shape[1:2], -INF)
    output = torch.einsum("ht,thd->hd", scores.double().softmax(-1), values.double())
    return output.float(), scores.double().logsumexp(-1).float()


def merge(*states: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """All states as parts of one sequence."""
    outputs, lses = (torch.stack(parts) for parts in zip(*states, strict=True))
    output, lse = merge_attention_states(outputs, lses, torch.zeros(len(states), dtype=torch.int64), 1)
    return output[0], lse[0]


def number(output: float, lse: float) -> tuple[Tensor, Tensor]:
    """A state of one head of one element."""
    return torch.tensor([[output]]), torch.tensor([lse])


def random_state(tokens: int = 9, heads: int = 3, dim: int = 5, seed: int = 0, largest: float = 1.0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(heads, tokens, generator=generator) * largest
    return scores, torch.randn(tokens, heads, dim, generator=generator)


def parts_at(scores: Tensor, values: Tensor, cuts: list[int]) -> list[tuple[Tensor, Tensor]]:
    edges = [0, *cuts, scores.shape[1]]
    return [state(scores[:, a:b], values[a:b]) for a, b in zip(edges, edges[1:], strict=False)]


def assert_same(actual, expected, tolerance=1e-6):
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


def test_an_empty_part_changes_nothing():
    """D23: (3.0, lse 1.0) beside (0, -inf) is (3.0, 1.0), in both orders."""
    for states in ([number(3.0, 1.0), number(0.0, -INF)], [number(0.0, -INF), number(3.0, 1.0)]):
        output, lse = merge(*states)
        assert (output.item(), lse.item()) == (3.0, 1.0)


def test_nothing_but_empty_parts_is_empty():
    """D23: (0, -inf), not NaN."""
    output, lse = merge(number(0.0, -INF), number(0.0, -INF))
    assert (output.item(), lse.item()) == (0.0, -INF)


def test_nine_tokens_cut_at_4_and_8():
    """D23: parts [0, 4), [4, 8), [8, 9)."""
    scores, values = random_state(9)
    assert_same(merge(*parts_at(scores, values, [4, 8])), state(scores, values))


@pytest.mark.parametrize("largest", [1.0, 1e4])
def test_any_cuts_in_any_order(largest):
    """Commutative: random cuts, some of them the same, so that parts are empty; scores of 1e4 do not overflow.

    An lse of 1e4 is a multiple of 1e-3 in float32, so weights that come from it are that far off.
    """
    chooser = random.Random(0)
    for seed in range(50):
        scores, values = random_state(chooser.randint(1, 60), seed=seed, largest=largest)
        parts = parts_at(scores, values, sorted(chooser.choices(range(scores.shape[1] + 1), k=chooser.randint(0, 8))))
        chooser.shuffle(parts)
        assert_same(merge(*parts), state(scores, values), 1e-5 if largest == 1.0 else 5e-3)


def test_merging_is_associative():
    """What is merged is a state again: (a b) c, a (b c) and a b c are the same, an empty one among them or not."""
    for cuts in ([4, 8], [0, 8], [4, 4], [9, 9], [0, 0]):
        a, b, c = parts_at(*random_state(9), cuts)
        assert_same(merge(merge(a, b), c), merge(a, b, c))
        assert_same(merge(a, merge(b, c)), merge(a, b, c))


@pytest.mark.parametrize("lse", [1e4, -1e4, 3e38, -3e38])
def test_large_scores_do_not_overflow(lse):
    """Two equal parts weigh the same, and a part that is far behind weighs nothing."""
    output, merged = merge(number(1.0, lse), number(4.0, lse))
    assert output.item() == 2.5
    assert merged.item() == pytest.approx(lse, rel=1e-4)
    behind = number(1e30, lse - abs(lse) / 2)
    output, merged = merge(behind, number(4.0, lse))
    assert (output.item(), merged.item()) == (4.0, pytest.approx(lse, rel=1e-6))


def test_parts_of_several_sequences_in_any_order():
    """Sequences with three parts, none, one, and two that are empty; each as if it were alone."""
    scores, values = random_state(9)
    empty = state(scores[:, :0], values[:0])
    of_each = [parts_at(scores, values, [2, 5]), [], [state(2 * scores, values)], [empty, empty]]
    rows = [(seq, *part) for seq, parts in enumerate(of_each) for part in parts]
    random.Random(0).shuffle(rows)
    seqs, outputs, lses = zip(*rows, strict=True)
    output, lse = merge_attention_states(torch.stack(outputs), torch.stack(lses), torch.tensor(seqs), 4)
    for seq, expected in enumerate([state(scores, values), empty, state(2 * scores, values), empty]):
        assert_same((output[seq], lse[seq]), expected)


def test_no_parts_at_all():
    output, lse = merge_attention_states(torch.zeros(0, 3, 5), torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), 2)
    assert torch.equal(output, torch.zeros(2, 3, 5))
    assert torch.equal(lse, torch.full((2, 3), -INF))


def test_the_parts_are_left_as_they_were():
    outputs, lses, seqs = torch.randn(3, 2, 4), torch.randn(3, 2), torch.tensor([0, 0, 1])
    before = outputs.clone(), lses.clone()
    merge_attention_states(outputs, lses, seqs, 2)
    assert torch.equal(outputs, before[0])
    assert torch.equal(lses, before[1])
