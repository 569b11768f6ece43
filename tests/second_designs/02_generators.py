"""Everything is a stream: tokens are paired with places, and counted as they pass."""

from collections import namedtuple
from itertools import count, islice, product

Place = namedtuple("Place", "block offset")


def num_required_blocks(num_tokens, block_size):
    if num_tokens < 0 or block_size < 1:
        raise ValueError("no such length or block size")
    return sum(1 for _ in range(0, num_tokens, block_size))


def locate(block_table, position, block_size):
    if position < 0:
        raise ValueError("before the start")
    places = product(block_table, range(block_size))
    for block, offset in islice(places, position, None):
        return Place(block, offset)
    raise ValueError("behind the end")


def slots(block_table, positions, block_size):
    slot_of = dict(zip(count(), (b.block_number * block_size + o for b, o in product(block_table, range(block_size)))))
    try:
        return tuple(slot_of[position] for position in positions)
    except KeyError as error:
        raise ValueError(f"position {error} has no block") from None


def internal_fragmentation(seq_lens, block_size):
    def wasted(seq_len):
        return num_required_blocks(seq_len, block_size) * block_size - seq_len

    total = 0
    for seq_len in seq_lens:
        total += wasted(seq_len)
    return total
