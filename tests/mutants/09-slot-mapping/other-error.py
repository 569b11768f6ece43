"""The list complains by itself when its entry is missing."""

import torch


def slot_mapping(block_table, positions, block_size):
    if any(position < -1 for position in positions):
        raise ValueError("there is nothing below -1")
    slots = [
        -1 if position == -1 else block_table[position // block_size] * block_size + position % block_size
        for position in positions
    ]
    return torch.tensor(slots, dtype=torch.int64)
