"""The old key leads to the block, and the new one too."""

from refimpl import PhysicalTokenBlock


def _new_block(self, block_hash, num_hashed_tokens):
    if self.current_num_blocks < self.num_blocks:
        block = PhysicalTokenBlock(self.device, self.current_num_blocks, self.block_size)
        self.current_num_blocks += 1
    else:
        block = self.evictor.evict()
        self.cached_blocks[block.block_hash] = block
    block.block_hash = block_hash
    block.num_hashed_tokens = num_hashed_tokens
    block.last_accessed = -1
    return block
