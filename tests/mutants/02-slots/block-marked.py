"""Where slots are asked for, keys and values are about to be written."""


def slots(block_table, positions, block_size):
    found = []
    for position in positions:
        if not 0 <= position < len(block_table) * block_size:
            raise ValueError("no block for this position")
        block = block_table[position // block_size]
        block.computed = True
        found.append(block.block_number * block_size + position % block_size)
    return found
