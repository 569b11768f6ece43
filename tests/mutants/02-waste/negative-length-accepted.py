"""What is missing to a multiple is wasted, for any number."""


def internal_fragmentation(seq_lens, block_size):
    if block_size < 1:
        raise ValueError("no such block")
    return sum(-seq_len % block_size for seq_len in seq_lens)
