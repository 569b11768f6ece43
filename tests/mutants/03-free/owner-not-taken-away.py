"""A block on the free list needs no count."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    if block.ref_count > 1:
        block.ref_count -= 1
    else:
        self.free_blocks.append(block)
