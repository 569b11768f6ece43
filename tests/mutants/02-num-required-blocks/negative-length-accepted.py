"""The formula has an answer for every number."""


def num_required_blocks(num_tokens, block_size):
    if block_size < 1:
        raise ValueError("no such block")
    return (num_tokens + block_size - 1) // block_size
