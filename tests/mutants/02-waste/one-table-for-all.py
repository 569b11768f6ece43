"""Memory is memory: add up all tokens, and round up."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    seq_lens = list(seq_lens)
    for seq_len in seq_lens:
        num_required_blocks(seq_len, block_size)
    tokens = sum(seq_lens)
    return num_required_blocks(tokens, block_size) * block_size - tokens
