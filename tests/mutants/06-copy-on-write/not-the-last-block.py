"""The first shared block of the table is the one to leave."""


def _copy_on_write(self, seq, block_table):
    new = self._allocate_last_block(seq)
    i = next(i for i, block in enumerate(block_table) if block.ref_count > 1)
    old, block_table[i] = block_table[i], new
    self.gpu_allocator.free(old)
    return old.block_number, new.block_number
