"""Put the new block in place, and let go of the last."""


def _copy_on_write(self, seq, block_table):
    new = self._allocate_last_block(seq)
    block_table[-1] = new
    self.gpu_allocator.free(block_table[-1])
    return block_table[-1].block_number, new.block_number
