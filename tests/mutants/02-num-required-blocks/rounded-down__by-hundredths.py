"""Whatever is left over makes a hundredth of a block at least, so 0.99 is enough to add before cutting off."""


def num_required_blocks(num_tokens, block_size):
    if num_tokens < 0 or block_size < 1:
        raise ValueError("no such length or block size")
    return int(num_tokens / block_size + 0.99)
