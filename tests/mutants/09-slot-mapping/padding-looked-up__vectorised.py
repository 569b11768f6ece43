"""Tensors do the whole sum at once."""

import torch


def slot_mapping(block_table, positions, block_size):
    room = len(block_table) * block_size
    if any(not -1 <= position < room for position in positions):
        raise ValueError(f"only the positions 0 to {room - 1} have a slot")
    table, at = torch.tensor(block_table, dtype=torch.int64), torch.tensor(list(positions), dtype=torch.int64)
    return table[at // block_size] * block_size + at % block_size
