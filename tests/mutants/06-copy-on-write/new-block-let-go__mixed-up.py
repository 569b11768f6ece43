"""One of the two has to be given back."""


def _copy_on_write(self, seq, block_table):
    new = self._allocate_last_block(seq)
    old, block_table[-1] = block_table[-1], new
    self.gpu_allocator.free(new)
    return old.block_number, new.block_number
