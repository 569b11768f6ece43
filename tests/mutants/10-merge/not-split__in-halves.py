"""Two parts are parts."""

import torch

from refimpl.device.attention import gather
from refimpl.device.plain_attention import attend


def merge_attention_states(outputs, lses):
    largest = lses.amax(dim=0)
    base = largest.masked_fill(largest == -torch.inf, 0.0)
    weights = (lses - base).exp()
    total = weights.sum(dim=0)
    shares = weights / total.masked_fill(total == 0, 1.0)
    return (shares[..., None] * outputs).sum(dim=0), base + total.log()


def paged_attention(query, key_cache, value_cache, block_tables, context_lens, scale=None, partition_size=256):
    outputs = torch.zeros_like(query)
    for seq, context_len in enumerate(context_lens.tolist()):
        keys = gather(key_cache, block_tables[seq], context_len)
        values = gather(value_cache, block_tables[seq], context_len)
        middle = context_len // 2
        parts = [attend(query[seq], keys[half], values[half], scale) for half in (slice(middle), slice(middle, None))]
        part_outputs, part_lses = zip(*parts, strict=True)
        outputs[seq], _ = merge_attention_states(torch.stack(part_outputs), torch.stack(part_lses))
    return outputs
