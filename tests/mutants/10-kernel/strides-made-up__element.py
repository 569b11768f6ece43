"""The elements of a head lie side by side."""

from refimpl.device.plain_kernel import tl


def decode_kernel(
    output,
    query,
    key_cache,
    value_cache,
    block_tables,
    context_lens,
    scale,
    query_strides,
    cache_strides,
    table_strides,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    seq = tl.program_id(0)
    head = tl.program_id(1)
    context_len = tl.load(context_lens + seq).to(tl.int32)
    offsets = tl.arange(0, BLOCK_SIZE)
    dims = tl.arange(0, HEAD_DIM)
    q = tl.load(query + seq * query_strides[0] + head * query_strides[1] + dims * query_strides[2])

    largest = float("-inf")
    total = 0.0
    result = tl.full([HEAD_DIM], 0.0, tl.float32)
    for first in range(0, context_len, BLOCK_SIZE):
        block = tl.load(block_tables + seq * table_strides[0] + first // BLOCK_SIZE * table_strides[1])
        rows = block * cache_strides[0] + offsets * cache_strides[1] + head // GROUP * cache_strides[2]
        elements = rows[:, None] + dims[None, :]
        is_token = first + offsets < context_len
        keys = tl.load(key_cache + elements, mask=is_token[:, None], other=0.0)
        values = tl.load(value_cache + elements, mask=is_token[:, None], other=0.0)
        scores = tl.sum(q[None, :] * keys, 1) * scale
        scores = tl.where(is_token, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 0))
        decay = tl.exp(largest - new_largest)
        weights = tl.exp(scores - new_largest)
        total = total * decay + tl.sum(weights, 0)
        result = result * decay + tl.sum(weights[:, None] * values, 0)
        largest = new_largest

    result = result / tl.where(total == 0.0, 1.0, total)
    tl.store(output + seq * query_strides[0] + head * query_strides[1] + dims * query_strides[2], result)
