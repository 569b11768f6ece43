"""What is held is lost to others."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    total = 0
    for seq_len in seq_lens:
        blocks = num_required_blocks(seq_len, block_size)
        total += blocks * block_size
    return total
