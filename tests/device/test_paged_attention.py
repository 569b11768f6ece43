"""Attention through block tables equals attention over the same tokens laid out in a row, on every path there is.

What computes it depends on the device, the dtype and the strides; what is computed does not. So the cases of decoding
are run on each path by its name. Errors of float32 stay below 1e-6 + 1e-5 of the number, those of half precision are
the rounding of inputs and outputs.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from paged import LAYOUTS, NAN, Batch, dense, far_pool, in_layout
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from refimpl import paged_attention
from refimpl.device import attention, triton_kernels
from refimpl.device.attention import (
    AttentionMetadata,
    decode_attention,
    gathered_attention,
    paged_prefill_attention,
)
from refimpl.device.sparse_attention import PART_LENS

EDGES = sorted({0, 1, *(part_len + i for part_len in PART_LENS for i in (-1, 0, 1))})
ROWS = ("tokens first", "heads first", "interleaved")  # layouts that the sparse path reads


def metadata_for(key_cache: Tensor, tables: Tensor, query_lens, context_lens) -> AttentionMetadata:
    num_blocks, block_size = key_cache.shape[:2]
    return AttentionMetadata(tables, query_lens, context_lens, num_blocks=num_blocks, block_size=block_size)


def prefill(query, key_cache, value_cache, tables, query_lens, context_lens, **options):
    metadata = metadata_for(key_cache, tables, query_lens, context_lens)
    return paged_prefill_attention(query, key_cache, value_cache, metadata, **options)


def by_prefill(query, key_cache, value_cache, tables, lens, **options):
    """Decoding as a prompt of one token after a cached prefix."""
    used = lens > 0
    outputs = torch.zeros_like(query)
    query_lens = used.long().tolist()
    outputs[used] = prefill(query[used], key_cache, value_cache, tables, query_lens, lens.tolist(), **options)
    return outputs


def by_gathering(query, key_cache, value_cache, tables, lens, scale=None):
    """What is specified, called as it stands."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    rows = zip(query, tables.long(), lens.tolist(), strict=True)
    return torch.stack([gathered_attention(q, key_cache, value_cache, *of_seq, scale) for q, *of_seq in rows])


def by_triton(*arguments, **options):
    return paged_attention(*arguments, backend="triton", **options)


@dataclass(frozen=True)
class Path:
    """One way to decode.

    num_random: random batches that a test can afford. alone: whether a sequence gets the same bits in any batch.
    """

    attend: Callable[..., Tensor]
    layouts: tuple[str, ...]
    dtype: torch.dtype = torch.float32
    num_random: int = 40
    longest: int = 700
    alone: bool = True

    def batch(self, lengths, **options) -> Batch:
        return Batch(lengths, **({"dtype": self.dtype, "layout": self.layouts[0]} | options))

    def close(self, actual: Tensor, expected: Tensor, message: object = "") -> None:
        atol, rtol = {torch.float32: (1e-6, 1e-5), torch.float16: (1e-3, 1e-3), torch.bfloat16: (8e-3, 8e-3)}[
            self.dtype
        ]
        torch.testing.assert_close(actual, expected, atol=atol, rtol=rtol, msg=lambda text: f"{message}: {text}")


PATHS = {
    "sparse": Path(paged_attention, ROWS, alone=False),
    "gathered, no rows": Path(paged_attention, ("gaps", "keys and values unlike")),
    "gathered, called directly": Path(by_gathering, LAYOUTS),
    "gathered, float16": Path(paged_attention, LAYOUTS, torch.float16),
    "gathered, bfloat16": Path(paged_attention, LAYOUTS, torch.bfloat16),
    "prefill": Path(by_prefill, LAYOUTS),
    "prefill, bfloat16": Path(by_prefill, LAYOUTS, torch.bfloat16),
    "triton": Path(by_triton, LAYOUTS, num_random=6, longest=70, alone=False),
}


@pytest.fixture(params=PATHS)
def path(request) -> Path:
    if request.param == "triton":
        pytest.importorskip("triton", reason="triton is not installed: it is there for Linux on x86-64 only")
        if torch.cuda.is_available():
            pytest.skip("there is CUDA, so nothing is interpreted: make gpu-check runs the kernel")
    return PATHS[request.param]


# What is specified takes one sequence and a table without garbage.
with_metadata = pytest.mark.parametrize(
    "path", [name for name, path in PATHS.items() if path.attend is not by_gathering], indirect=True
)


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """The names of the implementations that were called."""
    called = []
    for module, name in (
        (attention, "sparse_paged_attention"),
        (attention, "gathered_attention"),
        (triton_kernels, "paged_attention_triton"),
    ):
        right = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *args, right=right, name=name, **options: called.append(name) or right(*args, **options),
        )
    return called


def in_blocks(batch: Batch, table: list[int]) -> tuple[Tensor, ...]:
    """The arguments for a batch of one sequence that lies in blocks of our choice, of 8; NaN in all others."""
    pools = [torch.full((8, *pool.shape[1:]), NAN, dtype=pool.dtype) for pool in (batch.keys, batch.values)]
    for pool, old in zip(pools, (batch.keys, batch.values), strict=True):
        pool[table] = old[batch.tables[0].long()]
    tables = torch.tensor([table], dtype=batch.tables.dtype)
    return batch.query, *in_layout(*pools, batch.layout), tables, batch.lens


@pytest.mark.parametrize(
    ("name", "implementation"),
    [
        ("sparse", "sparse_paged_attention"),
        ("gathered, no rows", "gathered_attention"),
        ("gathered, float16", "gathered_attention"),
        ("triton", "paged_attention_triton"),
    ],
)
def test_a_path_is_what_its_name_says(name, implementation, calls):
    if name == "triton":
        pytest.importorskip("triton", reason="triton is not installed: it is there for Linux on x86-64 only")
    for layout in PATHS[name].layouts:
        calls.clear()
        PATHS[name].attend(*PATHS[name].batch([5], layout=layout).arguments())
        assert calls == [implementation]


def test_nan_in_unused_slots_does_not_leak(path):
    """D01: 8 blocks of 4, table [5, 2], 5 tokens; every other slot holds NaN, in keys and in values."""
    batch = path.batch([5])
    query, *pools, tables, lens = in_blocks(batch, [5, 2])
    assert int(pools[0].isnan().all(dim=(2, 3)).sum()) == 8 * 4 - 5
    path.close(path.attend(query, *pools, tables, lens), batch.expected)


@pytest.mark.parametrize("number", [0.0, 1e4, float("inf"), -float("inf")])
def test_unused_slots_do_not_change_a_bit(path, number):
    batch = path.batch([0, 1, 3, 5, 33, 69])
    assert torch.equal(path.attend(*batch.with_unused(number)), path.attend(*batch.arguments()))


def test_length_zero_gives_zeros(path):
    """D02: a row without keys is exactly 0, beside a row that has some, and alone; whatever the query holds."""
    batch = path.batch([0, 5])
    batch.query[0] = NAN
    output = path.attend(*batch.arguments())
    assert torch.equal(output[0], torch.zeros_like(output[0]))
    path.close(output[1], batch.expected[1])
    alone = path.batch([0])
    assert torch.equal(path.attend(*alone.arguments()), torch.zeros_like(alone.query))


@with_metadata
def test_no_sequences_at_all(path):
    query, *pools, tables, lens = path.batch([5]).arguments()
    assert path.attend(query[:0], *pools, tables[:0], lens[:0]).shape == (0, 4, 8)


@pytest.mark.parametrize("dim", [1, 80, 96])
def test_any_head_dim(path, dim):
    """D04: head sizes that are no power of two."""
    batch = path.batch([9, 33], dim=dim)
    path.close(path.attend(*batch.arguments()), batch.expected)


def test_neighbouring_heads_share_a_kv_head(path):
    """D06: heads 0 and 1 read KV head 0, heads 2 and 3 read KV head 1."""
    keys = torch.zeros(1, 1, 2, 4, dtype=path.dtype)
    values = torch.stack([torch.ones(4), torch.full((4,), 2.0)])[None, None].to(path.dtype)
    query = torch.ones(1, 4, 4, dtype=path.dtype)
    output = path.attend(query, *in_layout(keys, values, path.layouts[0]), torch.tensor([[0]]), torch.tensor([1]))
    assert output[0, :, 0].tolist() == [1, 1, 2, 2]


def test_heads_that_do_not_divide_are_refused():
    """D06: three query heads cannot share two KV heads."""
    arguments = torch.ones(1, 3, 4), torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), torch.tensor([[0]])
    with pytest.raises(ValueError, match="3 query heads cannot share 2 KV heads"):
        paged_attention(*arguments, torch.tensor([1]))
    with pytest.raises(ValueError, match="3 query heads cannot share 2 KV heads"):
        prefill(*arguments, [1], [1])


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is reserved and never filled is asked for as on Linux")
@pytest.mark.parametrize(
    ("strides", "implementation"),
    [
        ((1_039_680, 16, 8, 1), "sparse_paged_attention"),  # block 2066 starts at element 2,147,978,880
        ((16, 715_827_888, 8, 1), "sparse_paged_attention"),
        ((64, 16, 2_147_483_648, 1), "sparse_paged_attention"),
        ((1_039_680, 2, 1, 1), "sparse_paged_attention"),  # heads of one element, so there are as many rows, too
        ((1_039_681, 16, 8, 1), "gathered_attention"),
    ],
)
def test_offsets_need_64_bits(strides, implementation, calls):
    """D08: the last block, slot or head of a pool starts behind element 2**31; tables are int32."""
    dim = min(8, strides[2])
    batch = Batch([4], dim=dim)
    pool = far_pool((2067 if strides[0] > 1_000_000 else 8, 4, 2, dim), strides)
    pool[-1] = batch.tokens[0][0]
    tables = torch.tensor([[len(pool) - 1]], dtype=torch.int32)
    expected = dense(batch.query[0], *[batch.tokens[0][0]] * 2)
    output = paged_attention(batch.query, pool, pool, tables, batch.lens)
    assert calls == [implementation]
    torch.testing.assert_close(output[0], expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(by_prefill(batch.query, pool, pool, tables, batch.lens)[0], expected)


def test_pools_of_any_layout(path):
    """D10: keys and values interleaved by block, heads outermost as in `KVCache`, or not laid out alike."""
    for layout in path.layouts:
        batch = path.batch([11, 70, 1], layout=layout)
        path.close(path.attend(*batch.arguments()), batch.expected, layout)


def test_queries_and_tables_of_any_layout(path):
    """D10."""
    batch = path.batch([11, 30])
    expected = path.attend(*batch.arguments())
    query = batch.query.transpose(0, 2).contiguous().transpose(0, 2)
    tables, lens = batch.tables.t().contiguous().t(), batch.lens.repeat_interleave(2)[::2]
    path.close(path.attend(query, batch.keys, batch.values, tables, lens), expected)


def test_physical_order_changes_nothing(path):
    """D13: the same tokens in other blocks give the same bits, in 50 random orders."""
    batch = path.batch([11, 70, 1, 33])
    expected = path.attend(*batch.arguments())
    for seed in range(50 if path.num_random > 10 else 5):
        order = torch.randperm(len(batch.keys), generator=torch.Generator().manual_seed(seed))
        assert torch.equal(path.attend(*batch.moved(order)), expected)


def test_blocks_are_read_in_the_order_of_the_table(path):
    """D13: the tables [5, 2, 7] and [7, 5, 2] for the same tokens."""
    batch = path.batch([11])
    one, other = (path.attend(*in_blocks(batch, table)) for table in ([5, 2, 7], [7, 5, 2]))
    assert torch.equal(one, other)
    path.close(one, batch.expected)


@pytest.mark.parametrize("length", [1, 3])
def test_two_short_sequences_with_the_same_content(path, length):
    """D15: shorter than a block, in different blocks: equal, and not zero."""
    batch = path.batch([length])
    block = int(batch.tables[0, 0])
    order = torch.tensor([(block + 1) % 4, block, block, (block + 1) % 4])
    pools = in_layout(*(pool.contiguous()[order] for pool in (batch.keys, batch.values)), path.layouts[0])
    tables, lens = torch.tensor([[2], [1]]), torch.tensor([length, length])
    output = path.attend(batch.query.repeat(2, 1, 1), *pools, tables, lens)
    assert torch.equal(output[0], output[1])
    path.close(output[:1], batch.expected)


@pytest.mark.parametrize("name", ["gathered, float16", "prefill, float16", "gathered, bfloat16", "sparse", "triton"])
def test_large_scores_do_not_overflow(name):
    """D17: q and k of 120 at dim 64 make a product of 921600; the answer is the mean of the two values."""
    path = PATHS.get(name, Path(by_prefill, LAYOUTS, torch.float16))
    keys = torch.full((1, 2, 1, 64), 120.0, dtype=path.dtype)
    values = torch.stack([torch.full((1, 64), 1.0), torch.full((1, 64), 4.0)])[None].to(path.dtype)
    query = torch.full((1, 1, 64), 120.0, dtype=path.dtype)
    output = path.attend(query, keys, values, torch.tensor([[0]]), torch.tensor([2]))
    assert output.dtype == path.dtype
    assert output.unique().tolist() == [2.5]


@pytest.mark.parametrize("name", ["gathered, float16", "gathered, bfloat16", "prefill, bfloat16", "sparse"])
def test_sums_over_many_tokens_are_float32(name):
    """D17: 3000 values of 1 averaged in float16 would stop growing at 2048."""
    path = PATHS[name]
    keys, values = torch.zeros(750, 4, 1, 8, dtype=path.dtype), torch.ones(750, 4, 1, 8, dtype=path.dtype)
    query = torch.ones(1, 1, 8, dtype=path.dtype)
    output = path.attend(query, keys, values, torch.arange(750)[None], torch.tensor([3000]))
    assert output.dtype == path.dtype
    torch.testing.assert_close(output, torch.ones_like(output), atol=1e-4, rtol=0)


def test_every_length_at_which_parts_change(path):
    """D15, D23: no token, one, and one less and one more than a part of any size, in one batch and alone."""
    lengths = [length for length in EDGES if length <= path.longest]
    batch = path.batch(lengths, block_size=16)
    output = path.attend(*batch.arguments())
    path.close(output, batch.expected)
    query, *pools, tables, lens = batch.arguments()
    for seq, length in enumerate(lengths):
        one = slice(seq, seq + 1)
        alone = path.attend(query[one], *pools, tables[one], lens[one])
        path.close(alone, batch.expected[one], length)
        assert torch.equal(alone, output[one]) or not path.alone


def random_batch(path: Path, seed: int) -> Batch:
    chooser = random.Random(seed)
    lengths = [
        min(chooser.choice([chooser.choice(EDGES), chooser.randint(0, 40), chooser.randint(0, 700)]), path.longest)
        for _ in range(chooser.randint(1, 6))
    ]
    kv_heads = chooser.randint(1, 4)
    return path.batch(
        lengths,
        heads=kv_heads * chooser.randint(1, 8),
        kv_heads=kv_heads,
        dim=chooser.choice([chooser.randint(1, 128), 64]),
        block_size=chooser.randint(1, 32),
        seed=seed,
        table_dtype=chooser.choice([torch.int32, torch.int64]),
        layout=chooser.choice(path.layouts),
        unused=chooser.choice([-1, -(2**31), 2**31 - 1, 1000]),
    )


@with_metadata
def test_random_batches(path):
    """Lengths 0 to 700, blocks of 1 to 32 tokens, groups of 1 to 8 heads, heads of 1 to 128, garbage in tables."""
    for seed in range(path.num_random):
        batch = random_batch(path, seed)
        path.close(path.attend(*batch.arguments()), batch.expected, f"seed {seed}")


def test_what_the_others_in_a_batch_are_changes_nothing(path):
    """One sequence beside three kinds of company: the same bits where sequences are computed one by one, else close."""
    outputs = []
    for company in ([], [1, 2, 3], [path.longest], [0] * 9):
        query, *pools, tables, lens = path.batch([65, *company], seed=1).arguments()
        batch = path.batch([65], seed=2)
        pools = [torch.cat([pool, new]) for pool, new in zip(pools, (batch.keys, batch.values), strict=True)]
        tables[0, : batch.tables.shape[1]] = batch.tables + len(pools[0]) - len(batch.keys)
        query[0] = batch.query
        outputs.append(path.attend(query, *in_layout(*pools, path.layouts[0]), tables, lens)[:1])
        path.close(outputs[-1], batch.expected, company)
    assert all(torch.equal(output, outputs[0]) for output in outputs) or not path.alone


def test_sequences_may_share_blocks(path):
    """A forked sequence: the same blocks twice, one of the two longer by some tokens."""
    batch = path.batch([70])
    query, tables, lens = batch.query.repeat(2, 1, 1), batch.tables.repeat(2, 1), torch.tensor([66, 70])
    output = path.attend(query, batch.keys, batch.values, tables, lens)
    path.close(output[1:], batch.expected)
    path.close(output[0], dense(batch.query[0], *batch.tokens[0][:, :66]))


def test_scale_replaces_the_default(path):
    query, *others = path.batch([6, 40]).arguments()
    dim = query.shape[-1]
    path.close(path.attend(query, *others, scale=2 * dim**-0.5), path.attend(2 * query, *others))


def attend_in_layers(path: Path, layers: list[tuple[Tensor, Tensor, Tensor]], tables: Tensor, lens: list[int]):
    """The outputs of several layers through one metadata."""
    metadata = metadata_for(layers[0][1], tables, [1] * len(lens), lens)
    attend = paged_prefill_attention if path.attend is by_prefill else decode_attention
    backend = {"backend": "triton"} if path.attend is by_triton else {}
    return [attend(*layer, metadata, **backend) for layer in layers]


@with_metadata
@pytest.mark.parametrize("first", ["large scores", "infinite scores"])
@pytest.mark.filterwarnings("ignore:invalid value")  # numpy's, of the infinite scores in the interpreter
def test_layers_through_one_metadata_do_not_disturb_each_other(path, first):
    """Three layers with pools of their own: NaN where no token is, scores in the first that overflow or nearly do."""
    lens = [1, 33, 69, 4]
    batches = [path.batch(lens, seed=seed) for seed in range(3)]
    batches[0].query *= 1e4 if first == "large scores" else float("inf")
    tables = batches[0].tables
    layers = []
    for batch in batches:
        order = torch.empty(len(batch.keys), dtype=torch.long)
        used = batch.tables >= 0
        spare = [
            [block for block in range(len(order)) if block not in blocks[used]] for blocks in (tables, batch.tables)
        ]
        order[torch.cat([tables[used].long(), torch.tensor(spare[0])])] = torch.cat(
            [batch.tables[used].long(), torch.tensor(spare[1])]
        )
        layers.append((batch.query, *batch.moved(order)[1:3]))
    together = attend_in_layers(path, layers, tables, lens)
    assert together[0].isfinite().all() or first == "infinite scores"
    for layer, output, batch in zip(layers[1:], together[1:], batches[1:], strict=True):
        assert torch.equal(output, attend_in_layers(path, [layer], tables, lens)[0])
        path.close(output, batch.expected)


@with_metadata
def test_layers_of_different_layouts_through_one_metadata(path):
    """A plan for one layout is not taken for another: keys and values of one layer, or the pools of two layers."""
    lens = [5, 40]
    batches = [path.batch(lens, layout=layout) for layout in LAYOUTS]
    layers = [batch.arguments()[:3] for batch in batches]
    for layout, output in zip(LAYOUTS, attend_in_layers(path, layers, batches[0].tables, lens), strict=True):
        path.close(output, batches[0].expected, layout)


def prompts(lengths, cached, layout="heads first", dtype=torch.float32, heads=4):
    """A batch of prompts, the queries of those tokens that are not cached, and what they attend to."""
    batch = Batch(lengths, layout=layout, dtype=dtype, block_size=16, heads=heads)
    generator = torch.Generator().manual_seed(1)
    queries = [
        torch.randn(length - n, heads, 8, generator=generator).to(dtype)
        for length, n in zip(lengths, cached, strict=True)
    ]
    return batch, queries


def attend_prompts(batch: Batch, queries: list[Tensor]) -> tuple[Tensor, ...]:
    query_lens = [len(of_seq) for of_seq in queries]
    output = prefill(torch.cat(queries), batch.keys, batch.values, batch.tables, query_lens, batch.lens.tolist())
    return output.split(query_lens)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_prompts_attend_causally(layout, dtype):
    """Several at once, with prefixes of every kind that were cached earlier: none, all but one token, whole blocks."""
    lengths, cached = [5, 40, 33, 1, 70, 17], [0, 39, 16, 0, 3, 16]
    batch, queries = prompts(lengths, cached, layout, dtype)
    close = Path(prefill, LAYOUTS, dtype).close
    for output, query, tokens, before in zip(
        attend_prompts(batch, queries), queries, batch.tokens, cached, strict=True
    ):
        for i in range(len(query)):
            close(output[i], dense(query[i], *tokens[:, : before + i + 1]), (before, i))


def test_a_prompt_in_every_split_into_cached_and_new():
    length = 21
    _, (query,) = prompts([length], [0])
    for cached in range(length):
        batch, _ = prompts([length], [cached])
        (output,) = attend_prompts(batch, [query[cached:]])
        for i in range(cached, length):
            torch.testing.assert_close(output[i - cached], dense(query[i], *batch.tokens[0][:, : i + 1]))


def test_a_prompt_equals_its_tokens_decoded_one_by_one():
    batch, (query,) = prompts([40], [0])
    lens = torch.arange(1, 41)
    decoded = paged_attention(query, batch.keys, batch.values, batch.tables.expand(40, -1), lens)
    torch.testing.assert_close(attend_prompts(batch, [query])[0], decoded, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("cached", [0, 1, 100])
def test_a_prompt_longer_than_one_chunk_of_queries(cached):
    """The edges of the chunks of 512 queries, two chunks and a rest."""
    length = cached + 1100
    batch, queries = prompts([length, 5], [cached, 2], heads=2)
    output, other = attend_prompts(batch, queries)
    for i in (0, 1, 511, 512, 1023, 1024, 1099):
        expected = dense(queries[0][i], *batch.tokens[0][:, : cached + i + 1])
        torch.testing.assert_close(output[i], expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(other[-1], dense(queries[1][-1], *batch.tokens[1]))


@pytest.mark.parametrize("layout", ["heads first", "gaps"])
def test_sequences_without_new_tokens_among_prompts(layout):
    """One has tokens in the cache and none to compute, one has none at all."""
    batch, queries = prompts([5, 20, 0], [0, 20, 0], layout)
    first, second, third = attend_prompts(batch, queries)
    torch.testing.assert_close(first[4], dense(queries[0][4], *batch.tokens[0]))
    assert (len(second), len(third)) == (0, 0)


class NewTensors(TorchDispatchMode):
    """The sizes of the tensors that operations make, views of what was there before left out."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.known, self.sizes = {tensor.untyped_storage().data_ptr() for tensor in known}, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            is_dense = isinstance(tensor, Tensor) and tensor.layout == torch.strided
            if is_dense and tensor.untyped_storage().data_ptr() not in self.known:
                self.sizes.append(tensor.numel())
        return result


def test_memory_is_linear_in_all_contexts_together():
    """31 short contexts beside a long one: no tensor has a place for each sequence and each token of the longest."""
    lengths = [20] * 31 + [8192]
    batch = Batch(lengths, heads=2, kv_heads=1, dim=4, block_size=16)
    with NewTensors(batch.keys, batch.values) as made:
        paged_attention(*batch.arguments())
    assert max(made.sizes) <= 2 * 1.5 * sum(lengths) < 32 * 8192 / 8


def test_memory_of_a_prompt_is_linear_in_its_context():
    """A mask for a chunk of queries is there, one for all queries is not."""
    batch, queries = prompts([3000], [100], heads=2)
    with NewTensors(batch.keys, batch.values) as made:
        attend_prompts(batch, queries)
    assert max(made.sizes) <= 512 * 3000


@pytest.mark.parametrize("query_lens", [[3, 1, 40], [600, 2, 700]])
def test_all_masks_of_a_step_are_corners_of_one(query_lens):
    """So a long prompt keeps one mask, not one for each chunk of its queries; another dtype has its own."""
    lens = [50, 2, 700]
    query_lens = [min(new, of_seq) for new, of_seq in zip(query_lens, lens, strict=True)]
    metadata = metadata_for(torch.zeros(50, 16, 1, 1), torch.arange(50).repeat(3, 1), query_lens, lens)
    corners = [(3, 50), (1, 2), (40, 700), (2, 2), (40, 40)]
    masks = [metadata.mask(*shape, torch.float32) for shape in corners]
    for (query_len, context_len), mask in zip(corners, masks, strict=True):
        visible = [[key <= context_len - query_len + i for key in range(context_len)] for i in range(query_len)]
        assert torch.equal(mask, torch.where(torch.tensor(visible), 0.0, -float("inf")))
    assert len({mask.untyped_storage().data_ptr() for mask in masks}) == 1
    assert masks[0].untyped_storage().nbytes() <= 4 * 512 * 700
    assert metadata.mask(2, 2, torch.float16).dtype == torch.float16


def test_auto_on_a_cpu_is_torch(calls):
    batch = Batch([5])
    paged_attention(*batch.arguments(), backend="auto")
    paged_attention(*batch.arguments(), backend="torch")
    assert calls == ["sparse_paged_attention"] * 2


@pytest.mark.parametrize("lengths", [[5], [0]])
@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        (torch.bfloat16, "the Triton interpreter is right in float32 only, the query is bfloat16"),
        (torch.float64, "takes float32, float16 or bfloat16, the query is float64"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA, so nothing is interpreted")
def test_triton_says_why_it_does_not_take_a_dtype(lengths, dtype, reason):
    """D18: whether there are tokens or not."""
    pytest.importorskip("triton", reason="triton is not installed: it is there for Linux on x86-64 only")
    with pytest.raises(ValueError, match=f"backend 'triton' cannot run here: .*{reason}.*use backend=\"torch\""):
        paged_attention(*Batch(lengths, dtype=dtype).arguments(), backend="triton")


def test_triton_that_is_not_there_says_so(monkeypatch):
    """D19: and `auto` does without."""
    monkeypatch.setattr(triton_kernels, "triton", None)
    batch = Batch([5])
    with pytest.raises(ValueError, match="'triton' cannot run here: triton is not installed: pip install triton"):
        paged_attention(*batch.arguments(), backend="triton")
    torch.testing.assert_close(paged_attention(*batch.arguments()), batch.expected)


@pytest.mark.parametrize("cache_dtype", [torch.bfloat16, torch.float16])
def test_a_query_may_be_wider_than_the_cache_except_for_triton(cache_dtype):
    """D18: the kernel multiplies tiles of one dtype."""
    batch = Batch([5, 40], dtype=cache_dtype)
    query, *others = batch.arguments()
    expected = torch.stack([dense(row.float(), *tokens) for row, tokens in zip(query, batch.tokens, strict=True)])
    torch.testing.assert_close(paged_attention(query.float(), *others), expected, atol=1e-6, rtol=1e-5)
    with pytest.raises(ValueError, match=f"are torch.float32, {cache_dtype} and {cache_dtype}: make them one"):
        paged_attention(query.float(), *others, backend="triton")


def test_gradients_flow_where_they_are_asked_for():
    """The fast path keeps no graph, so a query that wants a gradient goes the plain way."""
    batch = Batch([5, 0, 40])
    batch.query.requires_grad_()
    output = paged_attention(*batch.arguments())
    torch.testing.assert_close(output.detach(), batch.expected, atol=1e-6, rtol=1e-5)
    output.sum().backward()
    assert batch.query.grad.isfinite().all()
    assert batch.query.grad[0].any()
    with torch.no_grad():
        assert not paged_attention(*batch.arguments()).requires_grad


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_tables": torch.tensor([[0, 4]])}, "block 4 is not in the cache, which holds blocks 0 to 3"),
        ({"block_tables": torch.tensor([[-1, 0]])}, "block -1 is not in the cache"),
        ({"block_tables": torch.tensor([0])}, "need block_tables of 1 rows"),
        ({"block_tables": torch.tensor([[0.5, 1.5]])}, "block_tables is torch.float32"),
        ({"context_lens": torch.tensor([5.5])}, "context_lens is torch.float32"),
        ({"context_lens": torch.tensor([9])}, "9 tokens does not fit its block table: 2 blocks of 4 hold 8"),
        ({"context_lens": torch.tensor([-1])}, "-1, a length must be 0 or more"),
        ({"context_lens": torch.tensor([1, 1])}, "1 sequences need"),
        ({"key_cache": torch.zeros(4, 2, 8)}, r"key_cache is \[4, 2, 8\], they must be"),
        ({"key_cache": torch.zeros(4, 4, 0, 8)}, r"key_cache is \[4, 4, 0, 8\], they must be"),
        ({"key_cache": torch.zeros(4, 4, 2, 0)}, r"key_cache is \[4, 4, 2, 0\], they must be"),
        ({"value_cache": torch.zeros(4, 4, 1, 8)}, "value_cache is"),
        ({"query": torch.zeros(4, 8)}, r"query is \[4, 8\]"),
        ({"query": torch.zeros(1, 4, 6)}, "head_dim is 6 in the query and 8 in the cache"),
        ({"backend": "cuda"}, "backend is 'cuda', it must be one of"),
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
    ("query_lens", "context_lens", "message"),
    [
        ([3], [4], "add up to 3"),
        ([2], [1], "2 tokens does not fit a context of 1"),
        ([-1], [1], "-1 tokens does not fit"),
        ([1, 1], [4], "1 block tables, 2 query_lens and 1 context_lens"),
    ],
)
def test_query_lengths_that_do_not_fit_are_refused(query_lens, context_lens, message):
    pools = torch.zeros(1, 4, 1, 4), torch.zeros(1, 4, 1, 4)
    with pytest.raises(ValueError, match=message):
        prefill(torch.ones(2, 1, 4), *pools, torch.tensor([[0]]), query_lens, context_lens)
