"""The last block of the table is where the copy comes from."""


def _copy_on_write(self, seq, block_table):
    old = block_table.pop()
    try:
        block_table.append(self._allocate_last_block(seq))
    except ValueError:
        block_table.append(old)
        raise
    self.gpu_allocator.free(old)
    return block_table[-1].block_number, old.block_number
