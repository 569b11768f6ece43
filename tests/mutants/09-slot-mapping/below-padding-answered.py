"""Whatever is negative is padding."""

import torch


def slot_mapping(block_table, positions, block_size):
    room = len(block_table) * block_size
    if any(position >= room for position in positions):
        raise ValueError(f"only the positions up to {room - 1} have a slot")
    slots = [
        -1 if position < 0 else block_table[position // block_size] * block_size + position % block_size
        for position in positions
    ]
    return torch.tensor(slots, dtype=torch.int64)
