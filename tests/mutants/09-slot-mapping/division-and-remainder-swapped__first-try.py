"""The remainder says the block, whatever the position."""

import torch


def slot_mapping(block_table, positions, block_size):
    return torch.tensor([block_table[i % block_size] * block_size + i // block_size for i in positions])
