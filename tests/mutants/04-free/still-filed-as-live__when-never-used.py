"""The dictionary is tidied up when the block is taken again."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    block.ref_count -= 1
    if block.ref_count == 0:
        self.evictor.add(block)
        if block.last_accessed != -1:
            del self.cached_blocks[block.block_hash]
