"""Rounded up is rounded up, whatever the type."""

import numpy as np


def num_required_blocks(num_tokens, block_size):
    if num_tokens < 0 or block_size < 1:
        raise ValueError(f"{num_tokens} tokens in blocks of {block_size}")
    return np.ceil(num_tokens / block_size)
