"""The whole blocks and one more, less the tokens."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    total = 0
    for seq_len in seq_lens:
        num_required_blocks(seq_len, block_size)
        total += (seq_len // block_size + 1) * block_size - seq_len
    return total
