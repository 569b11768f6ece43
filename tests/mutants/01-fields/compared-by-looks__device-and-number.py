"""A block is known by its device and its number."""

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
        return (self.device, self.block_number) == (other.device, other.block_number)

    def __hash__(self):
        return hash((self.device, self.block_number))
