"""A text lies in one piece from its first slot on."""

import torch


def slot_mapping(block_table, positions, block_size):
    room = len(block_table) * block_size
    if any(not -1 <= position < room for position in positions):
        raise ValueError(f"only the positions 0 to {room - 1} have a slot")
    first = next((position for position in positions if position != -1), 0)
    start = block_table[first // block_size] * block_size + first % block_size if block_table else 0
    slots = [-1 if position == -1 else start + position - first for position in positions]
    return torch.tensor(slots, dtype=torch.int64)
