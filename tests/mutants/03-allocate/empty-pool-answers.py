"""None is how an empty pool says no."""


def allocate(self, block_hash=None, num_hashed_tokens=0):
    if not self.free_blocks:
        return None
    block = self.free_blocks.pop()
    block.ref_count = 1
    return block
