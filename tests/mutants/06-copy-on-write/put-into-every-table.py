"""The old block is replaced wherever it stands."""


def _copy_on_write(self, seq, block_table):
    new = self._allocate_last_block(seq)
    old = block_table[-1]
    for table in self.block_tables.values():
        for i, block in enumerate(table):
            if block is old:
                table[i] = new
    self.gpu_allocator.free(old)
    return old.block_number, new.block_number
