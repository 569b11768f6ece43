"""To free a free block does no harm, so let it pass."""


def free(self, block):
    if block.ref_count == 0:
        return
    block.ref_count -= 1
    if block.ref_count == 0:
        del self.cached_blocks[block.block_hash]
        self.evictor.add(block)
