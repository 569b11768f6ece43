"""Attention through block tables equals attention over the same tokens laid out in a row."""

from __future__ import annotations

import math
import random

import pytest
import torch

from refimpl import paged_attention
from refimpl.device.attention import AttentionMetadata, paged_prefill_attention

NAN = float("nan")


def dense(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One query token [heads, dim] against [tokens, kv_heads, dim], head by head in float64."""
    rows = []
    for head in range(query.shape[0]):
        kv_head = head * keys.shape[1] // query.shape[0]
        scores = keys[:, kv_head].double() @ query[head].double() / math.sqrt(query.shape[1])
        rows.append(scores.softmax(0) @ values[:, kv_head].double())
    return torch.stack(rows).to(query.dtype)


def paged(keys: torch.Tensor, table: list[int], num_blocks: int, block_size: int) -> torch.Tensor:
    """The tokens laid out in the blocks of `table`; NaN in every other slot."""
    cache = torch.full((num_blocks, block_size, *keys.shape[1:]), NAN, dtype=keys.dtype)
    for position in range(len(keys)):
        cache[table[position // block_size], position % block_size] = keys[position]
    return cache


def prefill(query, key_cache, value_cache, tables, query_lens, context_lens):
    num_blocks, block_size = key_cache.shape[:2]
    metadata = AttentionMetadata(tables, query_lens, context_lens, num_blocks=num_blocks, block_size=block_size)
    return paged_prefill_attention(query, key_cache, value_cache, metadata)


def random_sequence(length: int, heads: int = 4, kv_heads: int = 2, dim: int = 8):
    generator = torch.Generator().manual_seed(length)
    return tuple(torch.randn(*shape, generator=generator) for shape in [(heads, dim), *[(length, kv_heads, dim)] * 2])


def test_nan_in_unused_slots_does_not_leak():
    """D01: every slot that no token of the sequence fills holds NaN, in keys and in values."""
    query, keys, values = random_sequence(5)
    tables = torch.tensor([[5, 2]])
    output = paged_attention(
        query[None], paged(keys, [5, 2], 8, 4), paged(values, [5, 2], 8, 4), tables, torch.tensor([5])
    )
    torch.testing.assert_close(output[0], dense(query, keys, values), atol=1e-6, rtol=1e-6)


def test_length_zero_gives_zeros():
    """D02: a row without keys is exactly 0, beside a row that has some, and alone."""
    query, keys, values = random_sequence(5)
    pools = paged(keys, [5, 2], 8, 4), paged(values, [5, 2], 8, 4)
    tables = torch.tensor([[-1, -1], [5, 2]])
    output = paged_attention(torch.stack([query * NAN, query]), *pools, tables, torch.tensor([0, 5]))
    assert torch.equal(output[0], torch.zeros_like(query))
    torch.testing.assert_close(output[1], dense(query, keys, values), atol=1e-6, rtol=1e-6)
    alone = paged_attention(query[None], *pools, tables[:1], torch.tensor([0]))
    assert torch.equal(alone[0], torch.zeros_like(query))


def test_no_sequences_at_all():
    pools = torch.zeros(2, 4, 2, 8), torch.zeros(2, 4, 2, 8)
    nothing = torch.zeros(0, 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    assert paged_attention(torch.zeros(0, 4, 8), *pools, *nothing).shape == (0, 4, 8)


def test_neighbouring_heads_share_a_kv_head():
    """D06: heads 0 and 1 read KV head 0, heads 2 and 3 read KV head 1."""
    keys = torch.zeros(1, 1, 2, 4)
    values = torch.stack([torch.ones(4), torch.full((4,), 2.0)])[None, None]
    output = paged_attention(torch.ones(1, 4, 4), keys, values, torch.tensor([[0]]), torch.tensor([1]))
    assert output[0, :, 0].tolist() == [1, 1, 2, 2]


def test_heads_that_do_not_divide_are_refused():
    """D06: three query heads cannot share two KV heads."""
    pools = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4)
    with pytest.raises(ValueError, match="3 query heads cannot share 2 KV heads"):
        paged_attention(torch.ones(1, 3, 4), *pools, torch.tensor([[0]]), torch.tensor([1]))


@pytest.mark.parametrize("dim", [1, 80, 96])
def test_any_head_dim(dim):
    """D04: head sizes that are no power of two."""
    query, keys, values = random_sequence(9, dim=dim)
    pools = paged(keys, [1, 3, 0], 4, 4), paged(values, [1, 3, 0], 4, 4)
    output = paged_attention(query[None], *pools, torch.tensor([[1, 3, 0]]), torch.tensor([9]))
    torch.testing.assert_close(output[0], dense(query, keys, values), atol=1e-5, rtol=1e-5)


def test_a_cache_that_is_not_contiguous():
    """D10: keys and values interleaved by block, then a transposed key cache."""
    query, keys, values = random_sequence(11)
    table = [4, 0, 6]
    both = torch.stack([paged(keys, table, 7, 4), paged(values, table, 7, 4)], dim=1)
    arguments = torch.tensor([table]), torch.tensor([11])
    expected = paged_attention(query[None], both[:, 0].contiguous(), both[:, 1].contiguous(), *arguments)
    assert torch.equal(paged_attention(query[None], both[:, 0], both[:, 1], *arguments), expected)
    transposed = both[:, 0].transpose(1, 2).contiguous().transpose(1, 2)
    assert not transposed.is_contiguous()
    torch.testing.assert_close(paged_attention(query[None], transposed, both[:, 1], *arguments), expected)


def test_physical_order_changes_nothing():
    """D13: the same tokens in other blocks give the same bits, in 50 random orders."""
    query, keys, values = random_sequence(11)
    shuffled = random.Random(0)
    tables = [[5, 2, 7], [7, 5, 2]] + [shuffled.sample(range(8), 3) for _ in range(50)]
    outputs = [
        paged_attention(
            query[None], paged(keys, table, 8, 4), paged(values, table, 8, 4), torch.tensor([table]), torch.tensor([11])
        )
        for table in tables
    ]
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    torch.testing.assert_close(outputs[0][0], dense(query, keys, values), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("length", [1, 3])
def test_two_short_sequences_with_the_same_content(length):
    """D15: shorter than a block, in different blocks: equal, and not zero."""
    query, keys, values = random_sequence(length)
    pools = [paged(x, [3], 4, 4).nan_to_num() + paged(x, [1], 4, 4).nan_to_num() for x in (keys, values)]
    output = paged_attention(torch.stack([query] * 2), *pools, torch.tensor([[3], [1]]), torch.tensor([length] * 2))
    assert torch.equal(output[0], output[1])
    torch.testing.assert_close(output[0], dense(query, keys, values), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("is_prompt", [False, True])
def test_float16_scores_do_not_overflow(is_prompt):
    """D17: q and k of 120 at dim 64 make a product of 921600; the answer is the mean of the two values."""
    keys = torch.full((1, 2, 1, 64), 120.0, dtype=torch.float16)
    values = torch.stack([torch.full((1, 64), 1.0), torch.full((1, 64), 4.0)])[None].half()
    query, tables, lens = torch.full((1, 1, 64), 120.0).half(), torch.tensor([[0]]), torch.tensor([2])
    if is_prompt:
        output = prefill(query, keys, values, tables, [1], [2])
    else:
        output = paged_attention(query, keys, values, tables, lens)
    assert output.dtype == torch.float16
    assert output.unique().tolist() == [2.5]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_over_many_tokens_are_float32(dtype):
    """D17: 3000 values of 1 averaged in float16 would stop growing at 2048."""
    keys, values = torch.zeros(750, 4, 1, 8, dtype=dtype), torch.ones(750, 4, 1, 8, dtype=dtype)
    tables = torch.arange(750)[None]
    output = paged_attention(torch.ones(1, 1, 8, dtype=dtype), keys, values, tables, torch.tensor([3000]))
    assert output.dtype == dtype
    assert output.unique().tolist() == [1.0]


def test_sequences_of_different_lengths_in_one_call():
    sequences = [random_sequence(length) for length in (1, 4, 5, 13)]
    tables = [[9], [2], [0, 7], [1, 8, 3, 6]]
    pools = [torch.full((10, 4, 2, 8), NAN) for _ in range(2)]
    for (_, *tokens), table in zip(sequences, tables, strict=True):
        for pool, token in zip(pools, tokens, strict=True):
            pool[table] = paged(token, table, 10, 4)[table]
    padded = torch.tensor([table + [-7] * (4 - len(table)) for table in tables], dtype=torch.int32)
    lens = torch.tensor([1, 4, 5, 13], dtype=torch.int32)
    output = paged_attention(torch.stack([query for query, *_ in sequences]), *pools, padded, lens)
    for row, sequence in zip(output, sequences, strict=True):
        torch.testing.assert_close(row, dense(*sequence), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("cached", [0, 3])
def test_prompts_attend_causally(cached):
    """Each token of a prompt sees itself and what is before it, the part that was cached earlier included."""
    lengths, tables, pools = (5, 9, 4), [[1, 5], [0, 2, 6], [4]], [torch.full((7, 4, 2, 8), NAN) for _ in range(2)]
    queries, expected = [], []
    for length, table in zip(lengths, tables, strict=True):
        generator = torch.Generator().manual_seed(length)
        query = torch.randn(length, 4, 8, generator=generator)
        keys, values = torch.randn(2, length, 2, 8, generator=generator)
        for pool, token in zip(pools, (keys, values), strict=True):
            pool[table] = paged(token, table, 7, 4)[table]
        queries.append(query[cached:])
        expected += [dense(query[i], keys[: i + 1], values[: i + 1]) for i in range(cached, length)]
    padded = torch.tensor([table + [0] * (3 - len(table)) for table in tables])
    output = prefill(torch.cat(queries), *pools, padded, [length - cached for length in lengths], lengths)
    torch.testing.assert_close(output, torch.stack(expected), atol=1e-6, rtol=1e-6)


def test_a_prompt_longer_than_one_chunk_of_queries():
    length, generator = 700, torch.Generator().manual_seed(0)
    query, keys, values = (torch.randn(length, 1, 4, generator=generator) for _ in range(3))
    table = random.Random(1).sample(range(50), 44)
    pools = paged(keys, table, 50, 16), paged(values, table, 50, 16)
    output = prefill(query, *pools, torch.tensor([table]), [length], [length])
    for i in (0, 511, 512, 699):
        torch.testing.assert_close(output[i], dense(query[i], keys[: i + 1], values[: i + 1]), atol=1e-6, rtol=1e-5)


def test_scale_replaces_the_default():
    query, keys, values = random_sequence(6)
    pools = paged(keys, [1, 0], 2, 4), paged(values, [1, 0], 2, 4)
    arguments = *pools, torch.tensor([[1, 0]]), torch.tensor([6])
    output = paged_attention(query[None], *arguments, scale=2 * 8**-0.5)
    torch.testing.assert_close(output, paged_attention(2 * query[None], *arguments))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_tables": torch.tensor([[0, 4]])}, "block 4 is not in the cache, which holds blocks 0 to 3"),
        ({"block_tables": torch.tensor([[-1, 0]])}, "block -1 is not in the cache"),
        ({"context_lens": torch.tensor([9])}, "9 tokens does not fit its block table: 2 blocks of 4 hold 8"),
        ({"context_lens": torch.tensor([-1])}, "-1, a length must be 0 or more"),
        ({"context_lens": torch.tensor([1, 1])}, "1 sequences need"),
        ({"value_cache": torch.zeros(4, 4, 1, 8)}, "value_cache is"),
        ({"query": torch.zeros(1, 4, 6)}, "head_dim is 6 in the query and 8 in the cache"),
        ({"backend": "cuda"}, "backend is 'cuda'"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {
        "query": torch.zeros(1, 4, 8),
        "key_cache": torch.zeros(4, 4, 2, 8),
        "value_cache": torch.zeros(4, 4, 2, 8),
        "block_tables": torch.tensor([[0, 1]]),
        "context_lens": torch.tensor([6]),
    }
    paged_attention(**arguments)
    with pytest.raises(ValueError, match=message):
        paged_attention(**(arguments | changes))


@pytest.mark.parametrize(
    ("query_lens", "context_len", "message"),
    [([3], 4, "add up to 3"), ([2], 1, "2 tokens does not fit a context of 1")],
)
def test_query_lengths_that_do_not_fit_are_refused(query_lens, context_len, message):
    pools = torch.zeros(1, 4, 1, 4), torch.zeros(1, 4, 1, 4)
    with pytest.raises(ValueError, match=message):
        prefill(torch.ones(2, 1, 4), *pools, torch.tensor([[0]]), query_lens, [context_len])
