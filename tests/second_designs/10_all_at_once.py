"""No loop over tokens or parts but index tensors and masks; a kernel whose tiles know nothing of blocks."""

import torch

from refimpl.device.plain_kernel import tl


def gather(cache, block_table, num_tokens):
    positions = torch.arange(num_tokens)
    return cache[block_table[positions // cache.shape[1]], positions % cache.shape[1]]


def attend(query, keys, values, scale=None):
    group = query.shape[0] // keys.shape[1]
    keys, values = (tokens.repeat_interleave(group, dim=1).transpose(0, 1) for tokens in (keys, values))
    scale = query.shape[1] ** -0.5 if scale is None else scale
    scores = (keys @ (query * scale).unsqueeze(-1)).squeeze(-1)
    lse = torch.logsumexp(scores, dim=1)
    return (torch.softmax(scores, dim=1).unsqueeze(1) @ values).squeeze(1), lse


def attend_in_blocks(query, key_cache, value_cache, block_table, context_len, scale=None):
    """Two rounds over the blocks: the largest scores first, then sums that need no correction."""
    size, group = key_cache.shape[1], query.shape[0] // key_cache.shape[2]
    scale = query.shape[1] ** -0.5 if scale is None else scale

    def blocks():
        for first in range(0, context_len, size):
            place = block_table[first // size], slice(0, min(size, context_len - first))
            keys, values = (cache[place].repeat_interleave(group, dim=1) for cache in (key_cache, value_cache))
            yield (keys * query).sum(dim=-1) * scale, values

    largest = query.new_full(query.shape[:1], -torch.inf)
    for scores, _ in blocks():
        largest = torch.maximum(largest, scores.max(dim=0).values)
    total, output = torch.zeros_like(largest), torch.zeros_like(query)
    for scores, values in blocks():
        weights = torch.exp(scores - largest)
        total = total + weights.sum(dim=0)
        output = output + (weights[..., None] * values).sum(dim=0)
    return output / total.clamp(min=torch.finfo().tiny)[:, None], largest + torch.log(total)


def paged_attention(query, key_cache, value_cache, block_tables, context_lens, scale=None, partition_size=256):
    """Every sequence has as many parts as the longest, and most of some are empty."""
    num_seqs, num_heads, head_dim = query.shape
    longest = max(1, int(context_lens.max()))
    parts = -(-longest // partition_size)
    positions = torch.arange(parts * partition_size)
    is_token = positions < context_lens[:, None]
    entries = (positions // key_cache.shape[1]).clamp(max=block_tables.shape[1] - 1)
    blocks = torch.where(is_token, block_tables[:, entries], 0)
    group = num_heads // key_cache.shape[2]

    def tokens(cache):
        found = cache[blocks, positions % cache.shape[1]].masked_fill(~is_token[..., None, None], 0.0)
        return found.repeat_interleave(group, dim=2).unflatten(1, (parts, partition_size))

    keys, values = tokens(key_cache), tokens(value_cache)
    scale = head_dim**-0.5 if scale is None else scale
    scores = torch.einsum("shd,spthd->spht", query, keys) * scale
    scores = scores.masked_fill(~is_token.view(num_seqs, parts, 1, partition_size), -torch.inf)
    lses = scores.logsumexp(dim=-1)
    outputs = torch.einsum("spht,spthd->sphd", scores.softmax(dim=-1).nan_to_num(), values)
    return (lses.softmax(dim=1).nan_to_num()[..., None] * outputs).sum(dim=1)


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
    """Tiles of 8 tokens, whatever the block size: each token looks its own block up."""
    seq = tl.program_id(0)
    head = tl.program_id(1)
    context_len = tl.load(context_lens + seq).to(tl.int32)
    dims = tl.arange(0, HEAD_DIM)
    q = tl.load(query + seq * query_strides[0] + head * query_strides[1] + dims * query_strides[2])
    largest = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    result = tl.zeros([HEAD_DIM], tl.float32)
    for tile in range(0, tl.cdiv(context_len, 8)):
        positions = tile * 8 + tl.arange(0, 8)
        mask = positions < context_len
        blocks = tl.load(block_tables + seq * table_strides[0] + positions // BLOCK_SIZE * table_strides[1], mask=mask)
        rows = blocks * cache_strides[0] + positions % BLOCK_SIZE * cache_strides[1] + head // GROUP * cache_strides[2]
        where = rows[:, None] + dims[None, :] * cache_strides[3]
        keys = tl.load(key_cache + where, mask=mask[:, None])
        values = tl.where(mask[:, None], tl.load(value_cache + where, mask=mask[:, None]), 0.0)
        scores = tl.where(mask, tl.sum(keys * q[None, :] * scale, axis=1), float("-inf"))
        new = tl.maximum(largest, scores.max(axis=0))
        weights = tl.exp(scores - new)
        total = total * tl.exp(largest - new) + weights.sum(axis=0)
        result = result * tl.exp(largest - new) + tl.sum(weights[:, None] * values, axis=0)
        largest = new
    result = result / tl.where(total == 0.0, 1.0, total)
    tl.store(output + seq * query_strides[0] + head * query_strides[1] + dims * query_strides[2], result)
