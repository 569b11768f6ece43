"""Position -1 is a mistake like any other negative one, and a list of numbers makes a tensor of whole ones."""

import torch


def slot_mapping(block_table, positions, block_size):
    if any(position not in range(len(block_table) * block_size) for position in positions):
        raise ValueError("a position has no slot")
    return torch.tensor([block_table[p // block_size] * block_size + p % block_size for p in positions])
