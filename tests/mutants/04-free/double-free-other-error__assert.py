"""That must not happen."""


def free(self, block):
    assert block.ref_count > 0
    block.ref_count -= 1
    if block.ref_count == 0:
        del self.cached_blocks[block.block_hash]
        self.evictor.add(block)
