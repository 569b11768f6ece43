"""As many blocks as the tokens before it take, less one."""


def locate(block_table, position, block_size):
    if not 0 <= position < len(block_table) * block_size:
        raise ValueError(f"position {position} has no block")
    index = max(0, (position + block_size - 1) // block_size - 1)
    return block_table[index], position % block_size
