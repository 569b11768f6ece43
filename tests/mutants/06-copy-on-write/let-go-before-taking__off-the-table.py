"""Make room in the table, then fill it."""


def _copy_on_write(self, seq, block_table):
    old = block_table.pop()
    block_table.append(self._allocate_last_block(seq))
    self.gpu_allocator.free(old)
    return old.block_number, block_table[-1].block_number
