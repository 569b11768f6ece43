"""One block more, to be on the safe side."""

import math


def num_required_blocks(num_tokens, block_size):
    if num_tokens < 0 or block_size < 1:
        raise ValueError(f"{num_tokens} tokens in blocks of {block_size}")
    return math.ceil(num_tokens / block_size) + 1
