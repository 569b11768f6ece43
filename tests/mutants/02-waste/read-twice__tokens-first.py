"""All tokens, taken away from all slots."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    tokens = sum(seq_lens)
    return sum(num_required_blocks(seq_len, block_size) for seq_len in seq_lens) * block_size - tokens
