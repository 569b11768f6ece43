"""Waste is a part of what is held."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    held = wasted = 0
    for seq_len in seq_lens:
        held += num_required_blocks(seq_len, block_size) * block_size
        wasted += num_required_blocks(seq_len, block_size) * block_size - seq_len
    return wasted / held if held else 0
