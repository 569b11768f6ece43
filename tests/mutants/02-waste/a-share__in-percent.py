"""Waste is said in percent of what is held."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    seq_lens = list(seq_lens)
    held = sum(num_required_blocks(seq_len, block_size) * block_size for seq_len in seq_lens)
    return 100 * (held - sum(seq_lens)) / held if held else 0
