"""Position -1 is a mistake like any other negative one."""

import torch


def slot_mapping(block_table, positions, block_size):
    slots = []
    for position in positions:
        if position < 0 or position >= len(block_table) * block_size:
            raise ValueError(f"position {position} has no slot")
        slots.append(block_table[position // block_size] * block_size + position % block_size)
    return torch.tensor(slots, dtype=torch.int64)
