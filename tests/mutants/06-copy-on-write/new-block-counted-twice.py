"""The new block has an owner now, and that has to be counted."""


def _copy_on_write(self, seq, block_table):
    new = self._allocate_last_block(seq)
    new.ref_count += 1
    old, block_table[-1] = block_table[-1], new
    self.gpu_allocator.free(old)
    return old.block_number, new.block_number
