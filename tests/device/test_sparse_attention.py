"""What the sparse path plans: the rows that a step reads, no more of them than its tokens need."""

from __future__ import annotations

import random

import pytest
import torch
from paged import Batch, in_layout

from refimpl.device.attention import AttentionMetadata
from refimpl.device.sparse_attention import PART_LENS, pool_rows, token_rows

SHORTEST_PART = min(PART_LENS)


def plan_for(lengths, heads=4, kv_heads=2, dim=1, block_size=16, layout="heads first"):
    """A plan, the pool that it is for, and the batch."""
    batch = Batch(lengths, heads, kv_heads, dim, block_size, layout=layout)
    new = [min(length, 1) for length in lengths]
    metadata = AttentionMetadata(batch.tables, new, lengths, num_blocks=len(batch.keys), block_size=block_size)
    return metadata.decode_plan(batch.keys, heads, len(pool_rows(batch.keys))), batch


def entries(plan, heads=4) -> int:
    """Tokens that a head reads, those behind the end of a part included."""
    return len(plan.columns) // heads


@pytest.mark.parametrize("layout", ["tokens first", "heads first", "interleaved"])
def test_a_row_is_one_head_of_one_token(layout):
    keys = torch.arange(5 * 4 * 3 * 2.0).view(5, 4, 3, 2)
    pool, _ = in_layout(keys, keys, layout)
    rows = pool_rows(pool)
    tables, seqs, positions = torch.tensor([[0, 0], [3, 1]]), torch.tensor([1]), torch.tensor([[0, 3, 4]])
    first = token_rows(tables, seqs, positions, pool)
    step = pool.stride(2) // 2
    for head in range(3):
        expected = torch.stack([keys[3, 0, head], keys[3, 3, head], keys[1, 0, head]])
        assert torch.equal(rows[first[0] + head * step], expected)


def test_rows_of_a_view_begin_where_the_view_does():
    both = torch.arange(2 * 3 * 4.0).view(2, 3, 1, 4)
    assert torch.equal(pool_rows(both[1:])[0], both[1, 0, 0])


@pytest.mark.parametrize(
    "pool",
    [
        torch.zeros(2, 2, 2, 4, 2)[..., 0],  # elements of a head are apart
        torch.zeros(2, 2, 2, 5)[..., :4],  # rows of 5, of which 4 count
        torch.zeros(0, 2, 2, 4),
    ],
)
def test_strides_that_are_no_rows(pool):
    assert pool_rows(pool) is None


def test_entries_are_the_tokens_of_each_sequence_and_nothing_else():
    """Behind the end of a context stands the part's first token, which is real; no unused slot is ever read."""
    plan, batch = plan_for([1, 40, 0, 100])
    rows = pool_rows(batch.keys)
    assert rows[plan.columns.long()].isfinite().all()
    assert rows.isnan().any()
    columns = plan.columns.view(len(plan.seq_of_part), 4, plan.part_len)
    for seq, length in enumerate([1, 40, 0, 100]):
        mine = plan.seq_of_part == seq
        real = columns[mine].transpose(0, 1).reshape(4, -1)[:, (plan.bias[mine] == 0).flatten()]
        for head in range(4):
            assert torch.equal(rows[real[head].long()], batch.tokens[seq][0, :, head // 2])
        assert real.shape[1] == length


def test_a_long_context_beside_short_ones_costs_what_its_tokens_cost():
    """At most a quarter more entries than tokens, a 40th of batch times longest."""
    lengths = [100] * 31 + [32768]
    plan, _ = plan_for(lengths)
    assert entries(plan) <= 1.25 * sum(lengths)
    assert entries(plan) < 32 * 32768 / 25


def test_equal_contexts_cost_their_tokens():
    for length in (1, 31, 128, 1000, 4096):
        plan, _ = plan_for([length] * 8)
        assert entries(plan) == 8 * length
        assert (plan.merge is None) == (length <= 1024)


def test_entries_grow_with_the_tokens_of_the_batch():
    """At most half again as many as tokens, counting an unfinished shortest part for each sequence."""
    chooser = random.Random(0)
    for _ in range(100):
        lengths = [chooser.choice([0, 1, 31, 33, 100, 512, chooser.randint(1, 5000)]) for _ in range(32)]
        plan, _ = plan_for(lengths, heads=1, kv_heads=1)
        assert sum(lengths) <= entries(plan, heads=1) <= 1.5 * (sum(lengths) + 31 * len(lengths))


def test_parts_are_no_longer_than_they_may_be():
    plan, _ = plan_for([2 * max(PART_LENS) + 1])
    assert plan.part_len <= max(PART_LENS)
    assert len(plan.seq_of_part) >= 3
    assert SHORTEST_PART == 32  # what the bound above counts on
