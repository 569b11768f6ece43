"""The free blocks are a chain through the blocks themselves; a sentinel ends it."""


class Block:
    __slots__ = ("block_number", "block_size", "device", "next_free", "ref_count")

    def __init__(self, device, block_number, block_size, next_free):
        self.device, self.block_number, self.block_size = device, block_number, block_size
        self.ref_count, self.next_free = 0, next_free


class UncachedBlockAllocator:
    def __init__(self, device, block_size, num_blocks):
        self.head, self.num_free, self.num_blocks = None, num_blocks, num_blocks
        for number in range(num_blocks):
            self.head = Block(device, number, block_size, self.head)

    def allocate(self, block_hash=None, num_hashed_tokens=0):
        if self.head is None:
            raise ValueError("nothing is free")
        block, self.head = self.head, self.head.next_free
        block.ref_count, block.next_free = 1, None
        self.num_free -= 1
        return block

    def free(self, block):
        if block.ref_count < 1:
            raise ValueError("nobody holds it")
        block.ref_count -= 1
        if block.ref_count == 0:
            block.next_free, self.head = self.head, block
            self.num_free += 1

    def get_num_free_blocks(self):
        return self.num_free

    def get_num_total_blocks(self):
        return self.num_blocks
