"""One slot, one head at a time, with nothing but dot products; a kernel that reads a token a turn."""

import torch

from refimpl.device.plain_kernel import tl


def gather(cache, block_table, num_tokens):
    tokens = torch.empty(num_tokens, *cache.shape[2:])
    for position in range(num_tokens):
        index, offset = divmod(position, cache.shape[1])
        tokens[position] = cache[block_table[index].item(), offset]
    return tokens


def attend(query, keys, values, scale=None):
    if scale is None:
        scale = 1 / query.shape[1] ** 0.5
    group = query.shape[0] // keys.shape[1]
    output = torch.zeros_like(query)
    lse = torch.full(query.shape[:1], float("-inf"))
    for head in range(len(query)):
        for key, value in zip(keys[:, head // group], values[:, head // group], strict=True):
            score = query[head].dot(key) * scale
            share = torch.sigmoid(score - lse[head])
            output[head] += share * (value - output[head])
            lse[head] = torch.logaddexp(lse[head], score)
    return [output, lse]


def attend_in_blocks(query, key_cache, value_cache, block_table, context_len, scale=None):
    size = key_cache.shape[1]
    output, lse = torch.zeros_like(query), torch.full(query.shape[:1], -torch.inf)
    for position in range(context_len):
        block, offset = block_table[position // size], position % size
        states = [(output, lse), attend(query, key_cache[block, offset][None], value_cache[block, offset][None], scale)]
        outputs, lses = (torch.stack(each) for each in zip(*states, strict=True))
        output = (outputs * torch.softmax(lses, dim=0)[..., None]).sum(dim=0)
        lse = torch.logsumexp(lses, dim=0)
    return output, lse


def paged_attention(query, key_cache, value_cache, block_tables, context_lens, scale=None, partition_size=256):
    size = key_cache.shape[1]
    rows = []
    for one, table, context_len in zip(query, block_tables, context_lens, strict=True):
        output, lse = torch.zeros_like(one), torch.full(one.shape[:1], -torch.inf)
        for position in range(context_len):
            place = table[position // size], position % size
            part, of_part = attend(one, key_cache[place][None], value_cache[place][None], scale)
            output = output + torch.sigmoid(of_part - lse)[:, None] * (part - output)
            lse = torch.logaddexp(lse, of_part)
        rows.append(output)
    return torch.stack(rows)


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
    dims = tl.arange(0, HEAD_DIM)
    q = tl.load(query + seq * query_strides[0] + head * query_strides[1] + dims * query_strides[2]) * scale
    most = float("-inf")
    total = 0.0
    result = tl.zeros([HEAD_DIM], tl.float32)
    for position in range(tl.load(context_lens + seq).to(tl.int32)):
        entry = block_tables + seq * table_strides[0] + (position // BLOCK_SIZE) * table_strides[1]
        place = tl.load(entry).to(tl.int64) * cache_strides[0] + (position % BLOCK_SIZE) * cache_strides[1]
        place += (head // GROUP) * cache_strides[2]
        score = tl.sum(q * tl.load(key_cache + place + dims * cache_strides[3]), 0)
        now = tl.maximum(most, score)
        total = total * tl.exp(most - now) + tl.exp(score - now)
        value = tl.load(value_cache + place + dims * cache_strides[3])
        result = result * tl.exp(most - now) + tl.exp(score - now) * value
        most = now
    total = tl.where(total > 0, total, 1.0)
    tl.store(output + seq * query_strides[0] + head * query_strides[1] + dims * query_strides[2], result / total)
