"""The fields of all blocks are columns of one table; a block is its row there. Sizes and sets are another way, too."""

import math
from array import array

DEVICES, KEYS = [], []
NUMBERS, SIZES, COVERED, OWNERS = array("q"), array("q"), array("q"), array("q")
ACCESSED, COMPUTED = array("d"), bytearray()


def column(values):
    return property(lambda self: values[self.row], lambda self, value: values.__setitem__(self.row, value))


class PhysicalTokenBlock:
    __slots__ = ("row",)

    device, block_hash = column(DEVICES), column(KEYS)
    block_number, block_size, num_hashed_tokens, ref_count = map(column, (NUMBERS, SIZES, COVERED, OWNERS))
    last_accessed, computed = column(ACCESSED), column(COMPUTED)

    def __init__(self, device, block_number, block_size, block_hash=-1, num_hashed_tokens=0):
        if block_number < 0 or block_size <= 0:
            raise ValueError("no such block")
        self.row = len(NUMBERS)
        fields = (device, block_hash, block_number, block_size, num_hashed_tokens, 0, -1.0, 0)
        columns = (DEVICES, KEYS, NUMBERS, SIZES, COVERED, OWNERS, ACCESSED, COMPUTED)
        for values, value in zip(columns, fields, strict=True):
            values.append(value)


def kv_bytes_per_block(*sizes):
    if any(size <= 0 for size in sizes):
        raise ValueError(f"impossible sizes: {sizes}")
    return math.prod(sizes) << 1


def distinct_blocks(block_tables):
    seen, found = set(), ()
    for block_table in block_tables:
        for block in block_table:
            if id(block) not in seen:
                seen.add(id(block))
                found += (block,)
    return found
