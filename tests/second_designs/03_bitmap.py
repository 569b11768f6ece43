"""One integer whose bit i says that block i is free."""

from refimpl import PhysicalTokenBlock


class UncachedBlockAllocator:
    def __init__(self, device, block_size, num_blocks):
        self.blocks = tuple(PhysicalTokenBlock(device, number, block_size) for number in range(num_blocks))
        self.bits = (1 << num_blocks) - 1

    def allocate(self, block_hash=None, num_hashed_tokens=0):
        if not self.bits:
            raise ValueError("nothing is free")
        lowest = self.bits & -self.bits
        self.bits ^= lowest
        block = self.blocks[lowest.bit_length() - 1]
        block.ref_count = 1
        return block

    def free(self, block):
        if self.bits >> block.block_number & 1:
            raise ValueError("nobody holds it")
        block.ref_count -= 1
        if block.ref_count == 0:
            self.bits |= 1 << block.block_number

    def get_num_free_blocks(self):
        return self.bits.bit_count()

    def get_num_total_blocks(self):
        return len(self.blocks)
