"""Look at the count and then lower it."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    if block.ref_count == 0:
        self.free_blocks.append(block)
    block.ref_count -= 1
