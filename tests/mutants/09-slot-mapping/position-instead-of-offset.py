"""From the first slot of its block a token lies its position further on."""

import torch


def slot_mapping(block_table, positions, block_size):
    room = len(block_table) * block_size
    if any(not -1 <= position < room for position in positions):
        raise ValueError(f"only the positions 0 to {room - 1} have a slot")
    slots = [
        -1 if position == -1 else block_table[position // block_size] * block_size + position for position in positions
    ]
    return torch.tensor(slots, dtype=torch.int64)
