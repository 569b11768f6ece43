"""What nobody holds is taken out of the dictionary, and that is all."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    block.ref_count -= 1
    if block.ref_count == 0:
        del self.cached_blocks[block.block_hash]
