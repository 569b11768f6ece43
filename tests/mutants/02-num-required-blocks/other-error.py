"""Python says no by itself when it is asked to divide by 0."""


def num_required_blocks(num_tokens, block_size):
    if num_tokens < 0:
        raise ValueError("no such length")
    return (num_tokens + block_size - 1) // block_size
