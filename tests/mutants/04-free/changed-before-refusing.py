"""Lower the count first, and complain when it is below zero."""


def free(self, block):
    block.ref_count -= 1
    if block.ref_count < 0:
        raise ValueError(f"block {block.block_number} has no owner")
    if block.ref_count == 0:
        del self.cached_blocks[block.block_hash]
        self.evictor.add(block)
