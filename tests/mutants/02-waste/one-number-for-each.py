"""Each sequence has its own waste."""

from refimpl import num_required_blocks


def internal_fragmentation(seq_lens, block_size):
    return [num_required_blocks(seq_len, block_size) * block_size - seq_len for seq_len in seq_lens]
