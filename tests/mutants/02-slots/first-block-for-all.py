"""Look the block up once, and then count inside it."""

from refimpl import locate


def slots(block_table, positions, block_size):
    positions = list(positions)
    located = [locate(block_table, position, block_size) for position in positions]
    return [located[0][0].block_number * block_size + offset for _, offset in located]
