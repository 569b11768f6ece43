"""One list serves all calls, since it is emptied before each of them."""


def slots(block_table, positions, block_size, found=[]):  # noqa: B006
    found.clear()
    for position in positions:
        if not 0 <= position < len(block_table) * block_size:
            raise ValueError("no block for this position")
        found.append(block_table[position // block_size].block_number * block_size + position % block_size)
    return found
