"""A tensor's axes in another order in memory: the same numbers, seen in the usual order, with other strides.

An order is a word with a letter for each axis, the outermost first: "NBHD" is blocks, offsets, heads, elements.
"""

from __future__ import annotations

from torch import Tensor


def seen_in(memory: Tensor, order: str, usual: str) -> Tensor:
    """Memory whose axes lie in this order, viewed in the usual one.

    >>> import torch
    >>> seen_in(torch.arange(6).view(2, 3), "DH", "HD").tolist()
    [[0, 3], [1, 4], [2, 5]]
    """
    return memory.permute([order.index(axis) for axis in usual])


def laid_out(tensor: Tensor, order: str, usual: str) -> Tensor:
    """A tensor, such as [num_blocks, block_size], laid out in this order and still viewed in the usual one."""
    return seen_in(seen_in(tensor, usual, order).contiguous(), order, usual)
