"""A position behind the table is padding, too."""

import torch


def slot_mapping(block_table, positions, block_size):
    if any(position < -1 for position in positions):
        raise ValueError("there is nothing below -1")
    room = len(block_table) * block_size
    slots = [
        -1 if not 0 <= position < room else block_table[position // block_size] * block_size + position % block_size
        for position in positions
    ]
    return torch.tensor(slots, dtype=torch.int64)
