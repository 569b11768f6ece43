"""Let go of the old block, then take the new one."""


def _copy_on_write(self, seq, block_table):
    old = block_table[-1]
    self.gpu_allocator.free(old)
    block_table[-1] = self._allocate_last_block(seq)
    return old.block_number, block_table[-1].block_number
