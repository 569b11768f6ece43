"""Blocks with the same content key are the same block."""

from dataclasses import dataclass


@dataclass(eq=False)
class PhysicalTokenBlock:
    device: object
    block_number: int
    block_size: int
    block_hash: object = -1
    num_hashed_tokens: int = 0
    ref_count: int = 0
    last_accessed: float = -1
    computed: bool = False

    def __post_init__(self):
        if self.block_number < 0 or self.block_size < 1:
            raise ValueError(f"block {self.block_number} of {self.block_size} tokens cannot be")

    def __eq__(self, other):
        return self is other or (self.block_hash != -1 and self.block_hash == other.block_hash)

    def __hash__(self):
        return id(self) if self.block_hash == -1 else hash(self.block_hash)
