"""Memory addressed by its strides, and blocks moved through a copy of the whole pool."""

from fractions import Fraction

import torch


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    blocks, left = divmod(int(Fraction(utilization) * total) - model - step, block_bytes)
    if blocks <= 0:
        raise ValueError(f"{blocks * block_bytes + left} bytes are left, a block takes {block_bytes}")
    return blocks


def slot_mapping(block_table, positions, block_size):
    slots = torch.full((len(positions),), -1, dtype=torch.long)
    for i, position in enumerate(positions):
        if position == -1:
            continue
        if position < 0 or position // block_size >= len(block_table):
            raise ValueError(f"position {position} has no slot")
        index, offset = divmod(position, block_size)
        slots[i] = block_table[index] * block_size + offset
    return slots


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    for tokens, cache in ((key, key_cache), (value, value_cache)):
        rows = cache.unbind(0)
        for token, slot in zip(tokens.to(cache.dtype), slot_mapping.tolist(), strict=True):
            if slot >= 0:
                row = rows[slot // cache.shape[1]]
                place = row.storage_offset() + slot % cache.shape[1] * row.stride(0)
                row.as_strided(row.shape[1:], row.stride()[1:], place).copy_(token)


def copy_blocks(kv_cache, pairs):
    before = kv_cache.clone()
    for source, destination in pairs:
        kv_cache.select(2, destination).copy_(before.select(2, source))


def swap_blocks(source, destination, pairs):
    sources, destinations = [first for first, _ in pairs], [second for _, second in pairs]
    destination[:, :, destinations] = source[:, :, sources]
