"""The last block is kept."""

from refimpl import PhysicalTokenBlock


def _new_block(self, block_hash, num_hashed_tokens):
    if self.current_num_blocks + 1 < self.num_blocks:
        block = PhysicalTokenBlock(self.device, self.current_num_blocks, self.block_size)
        self.current_num_blocks += 1
    else:
        block = self.evictor.evict()
    block.block_hash = block_hash
    block.num_hashed_tokens = num_hashed_tokens
    block.last_accessed = -1
    return block
