"""A block of one's own has one owner."""


def _copy_on_write(self, seq, block_table):
    new_block = self._allocate_last_block(seq)
    new_block.ref_count = 1
    shared_block, block_table[-1] = block_table[-1], new_block
    self.gpu_allocator.free(shared_block)
    return shared_block.block_number, new_block.block_number
