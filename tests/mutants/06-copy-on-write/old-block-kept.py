"""The others still need the old block, so it is not freed."""


def _copy_on_write(self, seq, block_table):
    new = self._allocate_last_block(seq)
    old, block_table[-1] = block_table[-1], new
    return old.block_number, new.block_number
