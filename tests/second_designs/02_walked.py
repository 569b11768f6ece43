"""Nothing is divided: tables are walked along, slots are looked up in an array that lays out the whole device."""

import numpy as np


def num_required_blocks(num_tokens, block_size):
    if min(num_tokens, block_size - 1) < 0:
        raise ValueError("no such length or block size")
    blocks = room = 0
    while room < num_tokens:
        blocks += 1
        room += block_size
    return blocks


def locate(block_table, position, block_size):
    for block in block_table if position >= 0 else ():
        if position < block_size:
            return block, position
        position -= block_size
    raise ValueError("the table ends before this position")


def slots(block_table, positions, block_size):
    wanted = np.fromiter(positions, dtype=np.int64)
    most = max((block.block_number for block in block_table), default=-1)
    device = np.arange((most + 1) * block_size).reshape(-1, block_size)
    of_the_text = device[[block.block_number for block in block_table]].reshape(-1)
    if wanted.size and (wanted.min() < 0 or wanted.max() >= of_the_text.size):
        raise ValueError("a position has no block")
    return of_the_text[wanted]


def internal_fragmentation(seq_lens, block_size):
    lengths = np.fromiter(seq_lens, dtype=np.int64)
    if block_size < 1 or (lengths < 0).any():
        raise ValueError("no such length or block size")
    return (-lengths % block_size).sum()
