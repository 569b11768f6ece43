"""The allocator knows which block went out; that is enough."""


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if not self.free_blocks:
        raise ValueError(f"all {self.num_blocks} blocks are in use")
    block = self.free_blocks.pop()
    block.ref_count = 1
