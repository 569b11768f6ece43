"""Whether it fits shows when one tries."""


def can_swap_out(self, group):
    try:
        for block in self._distinct_blocks(group):
            self.cpu_allocator.allocate(block.block_hash, block.num_hashed_tokens)
    except ValueError:
        return False
    return True
