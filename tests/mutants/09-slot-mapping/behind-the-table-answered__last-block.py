"""What has no block goes into the last one."""

import torch


def slot_mapping(block_table, positions, block_size):
    if any(position < -1 for position in positions):
        raise ValueError("there is nothing below -1")
    last = len(block_table) - 1
    slots = [
        -1 if position == -1 else block_table[min(position // block_size, last)] * block_size + position % block_size
        for position in positions
    ]
    return torch.tensor(slots, dtype=torch.int64)
