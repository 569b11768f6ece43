"""Loops over tokens, and blocks moved by index tensors; slots by numpy, and the number of blocks by counting up."""

import numpy as np
import torch


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    left = total * utilization - (model + step)
    blocks = int(left / block_bytes)
    while blocks * block_bytes > left:
        blocks -= 1
    if blocks < 1 or left < 0:
        raise ValueError(f"{left:.0f} bytes hold no block")
    return np.int64(blocks)


def slot_mapping(block_table, positions, block_size):
    at = np.fromiter(positions, dtype=np.int64)
    if at.size and (at.min() < -1 or at.max() >= len(block_table) * block_size):
        raise ValueError("a position has no slot")
    rows = np.arange(block_size) + np.asarray([*block_table, 0], dtype=np.int64)[:, None] * block_size
    return torch.from_numpy(np.where(at < 0, -1, rows.ravel()[at]))


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    block_size = key_cache.size(1)
    for token, slot in enumerate(map(int, slot_mapping)):
        if slot == -1:
            continue
        block, offset = divmod(slot, block_size)
        key_cache[block, offset].copy_(key[token])
        value_cache[block, offset].copy_(value[token])
    return key_cache, value_cache


def copy_blocks(kv_cache, pairs):
    if not pairs:
        return
    sources, destinations = torch.tensor(pairs).unbind(1)
    kv_cache.index_copy_(2, destinations, kv_cache.index_select(2, sources))


def swap_blocks(source, destination, pairs):
    for layer, to in zip(source, destination, strict=True):
        for side in (0, 1):
            for block, other in pairs:
                to[side, other].copy_(layer[side, block])
