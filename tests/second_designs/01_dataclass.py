"""A dataclass that compares by identity, a size summed up layer by layer, a list that is looked through each time."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False, slots=True)
class PhysicalTokenBlock:
    device: Any
    block_number: int
    block_size: int
    block_hash: Any = -1
    num_hashed_tokens: int = 0
    ref_count: int = field(init=False, default=0)
    last_accessed: float = field(init=False, default=-1.0)
    computed: bool = field(init=False, default=False)

    def __post_init__(self):
        if not (self.block_number >= 0 and self.block_size >= 1):
            raise ValueError(f"no block {self.block_number} of {self.block_size} tokens")


def kv_bytes_per_block(block_size, num_layers, num_kv_heads, head_dim, dtype_bytes):
    for size in (block_size, num_layers, num_kv_heads, head_dim, dtype_bytes):
        if size < 1:
            raise ValueError(size)
    vector = num_kv_heads * head_dim * dtype_bytes
    return sum(block_size * (vector + vector) for _ in range(num_layers))


def distinct_blocks(block_tables):
    found = []
    for block_table in block_tables:
        for block in block_table:
            if not any(block is other for other in found):
                found.append(block)
    return found
