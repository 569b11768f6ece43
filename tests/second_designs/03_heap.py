"""A heap: the free block with the smallest number goes out next. Blocks are made when they first go out."""

import heapq

from refimpl import PhysicalTokenBlock


class UncachedBlockAllocator:
    def __init__(self, device, block_size, num_blocks):
        self.device, self.block_size, self.num_blocks = device, block_size, num_blocks
        self.free_numbers = list(range(num_blocks))
        self.used = {}

    def allocate(self, block_hash=None, num_hashed_tokens=0):
        if len(self.used) == self.num_blocks:
            raise ValueError("nothing is free")
        block = PhysicalTokenBlock(self.device, heapq.heappop(self.free_numbers), self.block_size)
        block.ref_count = 1
        self.used[block.block_number] = block
        return block

    def free(self, block):
        if self.used.get(block.block_number) is not block:
            raise ValueError("nobody holds it")
        block.ref_count -= 1
        if not block.ref_count:
            del self.used[block.block_number]
            heapq.heappush(self.free_numbers, block.block_number)

    def get_num_free_blocks(self):
        return self.num_blocks - len(self.used)

    def get_num_total_blocks(self):
        return self.num_blocks
