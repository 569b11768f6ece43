"""The new block first: it is what the copy is for."""


def _copy_on_write(self, seq, block_table):
    new = self._allocate_last_block(seq)
    old, block_table[-1] = block_table[-1], new
    self.gpu_allocator.free(old)
    return new.block_number, old.block_number
