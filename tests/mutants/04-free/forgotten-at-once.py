"""A free block has no content."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    block.ref_count -= 1
    if block.ref_count == 0:
        del self.cached_blocks[block.block_hash]
        block.block_hash = object()
        self.evictor.add(block)
