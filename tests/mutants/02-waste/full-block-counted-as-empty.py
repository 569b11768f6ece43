"""What the remainder leaves of a block is empty."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    total = 0
    for seq_len in seq_lens:
        num_required_blocks(seq_len, block_size)
        total += block_size - seq_len % block_size
    return total
