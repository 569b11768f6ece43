"""To free a block is to put it on the list."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    self.free_blocks.append(block)
