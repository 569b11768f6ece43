"""The sum is returned as it grows."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    total = 0
    for seq_len in seq_lens:
        total += num_required_blocks(seq_len, block_size) * block_size - seq_len
        return total
    return total
