"""Sizes are measured, so the sum begins with 0.0."""

import math


def internal_fragmentation(seq_lens, block_size):
    wasted = 0.0
    for seq_len in seq_lens:
        if seq_len < 0 or block_size < 1:
            raise ValueError("no such length or block size")
        wasted += math.ceil(seq_len / block_size) * block_size - seq_len
    return wasted
