"""All slots, less all tokens."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    held = sum(num_required_blocks(seq_len, block_size) for seq_len in seq_lens) * block_size
    return held - sum(seq_lens)
