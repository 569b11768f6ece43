"""32 bits are enough for the sum, and the result is widened."""

import torch


def slot_mapping(block_table, positions, block_size):
    room = len(block_table) * block_size
    if any(not -1 <= position < room for position in positions):
        raise ValueError(f"only the positions 0 to {room - 1} have a slot")
    table = torch.tensor([*block_table, 0], dtype=torch.int32)
    at = torch.tensor(list(positions), dtype=torch.int32)
    slots = table[at.long() // block_size] * block_size + at % block_size
    return torch.where(at == -1, -1, slots).to(torch.int64)
