"""Whoever knows the number can make the block."""

from refimpl import Device, PhysicalTokenBlock


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    number = block_table[position // block_size].block_number
    return PhysicalTokenBlock(Device.GPU, number, block_size), position % block_size
