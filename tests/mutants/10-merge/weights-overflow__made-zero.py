"""The weight of a part is exp(lse), and NaN means that there was nothing to weigh."""

import torch

from refimpl.device.attention import gather
from refimpl.device.plain_attention import attend


def merge_attention_states(outputs, lses):
    weights = lses.exp()
    total = weights.sum(dim=0)
    shares = weights / total
    return (shares.nan_to_num()[..., None] * outputs).sum(dim=0), total.log()


def paged_attention(query, key_cache, value_cache, block_tables, context_lens, scale=None, partition_size=256):
    outputs = torch.zeros_like(query)
    for seq, context_len in enumerate(context_lens.tolist()):
        keys = gather(key_cache, block_tables[seq], context_len)
        values = gather(value_cache, block_tables[seq], context_len)
        parts = [
            attend(query[seq], keys[first : first + partition_size], values[first : first + partition_size], scale)
            for first in range(0, context_len, partition_size)
        ]
        if parts:
            part_outputs, part_lses = zip(*parts, strict=True)
            outputs[seq], _ = merge_attention_states(torch.stack(part_outputs), torch.stack(part_lses))
    return outputs
