"""Python says no by itself when it is asked to divide by 0."""


def internal_fragmentation(seq_lens, block_size):
    total = 0
    for seq_len in seq_lens:
        if seq_len < 0:
            raise ValueError("no such length")
        total += -seq_len % block_size
    return total
