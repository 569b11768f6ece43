"""Where no block has room, there are no blocks."""


def num_required_blocks(num_tokens, block_size):
    if num_tokens < 0:
        raise ValueError("no such length")
    if block_size < 1:
        return 0
    return -(-num_tokens // block_size)
