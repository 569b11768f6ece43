"""What a caller must not do is asserted."""


def num_required_blocks(num_tokens, block_size):
    assert num_tokens >= 0
    assert block_size >= 1
    return (num_tokens + block_size - 1) // block_size
