"""Put the block back, and put it back once more when its last owner has gone."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    block.ref_count -= 1
    if block.ref_count == 0:
        self.free_blocks.append(block)
        self.free_blocks.append(block)
