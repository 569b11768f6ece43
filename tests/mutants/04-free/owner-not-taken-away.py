"""The evictor needs no count."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    if block.ref_count > 1:
        block.ref_count -= 1
    else:
        del self.cached_blocks[block.block_hash]
        self.evictor.add(block)
