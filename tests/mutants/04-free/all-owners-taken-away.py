"""A freed block has no owners."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    block.ref_count = 0
    del self.cached_blocks[block.block_hash]
    self.evictor.add(block)
