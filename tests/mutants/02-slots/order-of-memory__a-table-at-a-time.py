"""Go through the table, and take what was asked for."""

from refimpl import locate


def slots(block_table, positions, block_size):
    wanted = list(positions)
    for position in wanted:
        locate(block_table, position, block_size)
    by_number = sorted(enumerate(block_table), key=lambda entry: entry[1].block_number)
    return [
        block.block_number * block_size + offset
        for index, block in by_number
        for offset in range(block_size)
        for _ in range(wanted.count(index * block_size + offset))
    ]
