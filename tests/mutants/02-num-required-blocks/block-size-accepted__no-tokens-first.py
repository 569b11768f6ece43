"""No tokens take no block, whatever else was asked."""


def num_required_blocks(num_tokens, block_size):
    if num_tokens == 0:
        return 0
    if num_tokens < 0 or block_size < 1:
        raise ValueError("no such length or block size")
    return (num_tokens - 1) // block_size + 1
