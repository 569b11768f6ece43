"""Every block has an empty end."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    total = 0
    for seq_len in seq_lens:
        blocks = num_required_blocks(seq_len, block_size)
        total += blocks * (blocks * block_size - seq_len)
    return total
