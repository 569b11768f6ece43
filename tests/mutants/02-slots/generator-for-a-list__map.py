"""What is done to each is a map."""

from refimpl import locate


def slots(block_table, positions, block_size):
    def slot(position):
        block, offset = locate(block_table, position, block_size)
        return block.block_number * block_size + offset

    return map(slot, positions)
