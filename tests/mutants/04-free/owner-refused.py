"""What somebody else still uses cannot be freed."""


def free(self, block):
    if block.ref_count != 1:
        raise ValueError(f"block {block.block_number} is in use")
    block.ref_count -= 1
    if block.ref_count == 0:
        del self.cached_blocks[block.block_hash]
        self.evictor.add(block)
