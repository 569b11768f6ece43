"""Freed is freed: into the evictor with it."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    block.ref_count -= 1
    self.cached_blocks.pop(block.block_hash, None)
    if block.block_hash not in self.evictor:
        self.evictor.add(block)
