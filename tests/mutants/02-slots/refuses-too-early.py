"""As many positions as there are blocks."""

from refimpl import locate


def slots(block_table, positions, block_size):
    positions = list(positions)
    if any(not 0 <= position < len(block_table) for position in positions):
        raise ValueError("no block")
    return [locate(block_table, position, block_size)[0].block_number * block_size for position in positions]
