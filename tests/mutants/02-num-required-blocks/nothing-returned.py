"""To print the number is to give it."""


def num_required_blocks(num_tokens, block_size):
    if num_tokens < 0 or block_size < 1:
        raise ValueError(f"{num_tokens} tokens in blocks of {block_size}")
    print((num_tokens + block_size - 1) // block_size)
