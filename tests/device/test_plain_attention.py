"""Paged attention in its plain form gives what the fast one gives, whatever the lengths, blocks, heads and layouts."""

from __future__ import annotations

import random

import paged
import pytest
import torch

from refimpl.device.attention import gather, paged_attention
from refimpl.device.plain_attention import attend, attend_in_blocks, merge_attention_states
from refimpl.device.plain_attention import paged_attention as plain_paged_attention

SEEDS = range(30)


def any_batch(seed):
    rng = random.Random(seed)
    kv_heads = rng.choice((1, 2, 3))
    return paged.Batch(
        [rng.choice((0, 1, 7, 8, 9, rng.randrange(90))) for _ in range(rng.randint(1, 4))],
        heads=kv_heads * rng.choice((1, 2, 3)),
        kv_heads=kv_heads,
        dim=rng.choice((1, 5, 16)),
        block_size=rng.choice((1, 2, 8)),
        seed=seed,
        table_dtype=torch.int64,
        layout=rng.choice(paged.LAYOUTS),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_it_equals_the_fast_one_in_parts_of_any_size(seed):
    batch = any_batch(seed)
    fast = paged_attention(*batch.arguments())
    torch.testing.assert_close(fast, batch.expected, atol=1e-5, rtol=1e-5)
    for partition_size in (1, 5, 8, 256):
        plain = plain_paged_attention(*batch.arguments(), partition_size=partition_size)
        torch.testing.assert_close(plain, fast, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_block_at_a_time_equals_all_at_once(seed):
    batch = any_batch(seed)
    for seq, length in enumerate(batch.lens.tolist()):
        table = batch.tables[seq]
        keys, values = (gather(pool, table, length) for pool in (batch.keys, batch.values))
        for scale in (None, 0.5):
            output, lse = attend_in_blocks(batch.query[seq], batch.keys, batch.values, table, length, scale)
            expected, expected_lse = attend(batch.query[seq], keys, values, scale)
            torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(lse, expected_lse, atol=1e-5, rtol=1e-5)


def test_scores_of_thousands_overflow_nowhere():
    """D17."""
    batch = paged.Batch([11], table_dtype=torch.int64)
    for factor in (1e3, -1e3):
        query = batch.query * factor
        fast = paged_attention(query, *batch.arguments()[1:])
        plain = plain_paged_attention(query, *batch.arguments()[1:], partition_size=3)
        in_blocks, _ = attend_in_blocks(query[0], batch.keys, batch.values, batch.tables[0], 11)
        assert fast.isfinite().all()
        torch.testing.assert_close(plain, fast, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(in_blocks, fast[0], atol=1e-3, rtol=1e-3)


def test_parts_without_tokens_weigh_nothing():
    """D23."""
    outputs, lses = torch.tensor([[[3.0]], [[0.0]]]), torch.tensor([[1.0], [-torch.inf]])
    output, lse = merge_attention_states(outputs, lses)
    assert (output.item(), lse.item()) == (3.0, 1.0)
    output, lse = merge_attention_states(outputs[1:], lses[1:])
    assert (output.item(), lse.item()) == (0.0, -torch.inf)


def test_states_merge_in_any_order_and_in_steps():
    generator = torch.Generator().manual_seed(0)
    outputs, lses = torch.randn(4, 2, 3, generator=generator), 50 * torch.randn(4, 2, generator=generator)
    expected = merge_attention_states(outputs, lses)
    first, second = merge_attention_states(outputs[2:], lses[2:]), merge_attention_states(outputs[:2], lses[:2])
    in_steps = merge_attention_states(*map(torch.stack, zip(first, second, strict=True)))
    for got, wanted in zip(in_steps, expected, strict=True):
        torch.testing.assert_close(got, wanted)
