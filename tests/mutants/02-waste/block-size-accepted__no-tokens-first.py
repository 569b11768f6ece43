"""A sequence without tokens wastes nothing, whatever else was asked."""


def internal_fragmentation(seq_lens, block_size):
    wasted = 0
    for seq_len in seq_lens:
        if seq_len == 0:
            continue
        if seq_len < 0 or block_size < 1:
            raise ValueError("no such length or block size")
        wasted += -seq_len % block_size
    return wasted
