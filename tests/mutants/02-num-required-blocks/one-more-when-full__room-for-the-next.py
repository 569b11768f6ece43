"""When the blocks are full, the next token needs room."""


def num_required_blocks(num_tokens, block_size):
    if num_tokens < 0 or block_size < 1:
        raise ValueError(f"{num_tokens} tokens in blocks of {block_size}")
    if num_tokens and num_tokens % block_size == 0:
        return num_tokens // block_size + 1
    return -(-num_tokens // block_size)
