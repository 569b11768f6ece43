"""Only 0 cannot be divided by."""


def num_required_blocks(num_tokens, block_size):
    if num_tokens < 0 or block_size == 0:
        raise ValueError("no such length or block")
    return (num_tokens + block_size - 1) // block_size
