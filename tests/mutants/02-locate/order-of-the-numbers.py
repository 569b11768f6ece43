"""Memory is in order, so the blocks of a text are."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    blocks = sorted(block_table, key=lambda block: block.block_number)
    return blocks[position // block_size], position % block_size
