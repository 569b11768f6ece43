"""Any free block will do for a copy."""


def _copy_on_write(self, seq, block_table):
    new = self.gpu_allocator.allocate()
    old, block_table[-1] = block_table[-1], new
    self.gpu_allocator.free(old)
    return old.block_number, new.block_number
