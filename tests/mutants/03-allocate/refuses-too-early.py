"""A pool keeps one block in reserve."""


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if len(self.free_blocks) <= 1:
        raise ValueError(f"all {self.num_blocks} blocks are in use")
    block = self.free_blocks.pop()
    block.ref_count = 1
    return block
