"""Less than nothing is nothing."""


def num_required_blocks(num_tokens, block_size):
    if block_size < 1:
        raise ValueError("no such block")
    return max(0, -(-num_tokens // block_size))
