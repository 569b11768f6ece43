"""Blocks come from the GPU's allocator."""


def _free_block_table(self, block_table):
    for block in block_table:
        self.gpu_allocator.free(block)
