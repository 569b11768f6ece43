"""The list raises an error of its own when it is empty."""


def allocate(self, block_hash=None, num_hashed_tokens=0):
    block = self.free_blocks.pop()
    block.ref_count = 1
    return block
