"""Only the lengths can be wrong."""


def internal_fragmentation(seq_lens, block_size):
    total = 0
    for seq_len in seq_lens:
        if seq_len < 0:
            raise ValueError("no such length")
        total += -seq_len % block_size if block_size > 0 else 0
    return total
