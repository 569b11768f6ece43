"""Positions come in order, so none but the last can be too large."""

import torch


def slot_mapping(block_table, positions, block_size):
    if len(positions) and not -1 <= positions[-1] < len(block_table) * block_size:
        raise ValueError(f"position {positions[-1]} has no slot")
    slots = [
        -1 if position == -1 else block_table[position // block_size] * block_size + position % block_size
        for position in positions
    ]
    return torch.tensor(slots, dtype=torch.int64)
