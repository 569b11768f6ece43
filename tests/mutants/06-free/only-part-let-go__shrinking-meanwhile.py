"""Take the blocks out of the table one after the other."""


def _free_block_table(self, block_table):
    for block in block_table:
        allocator = self.gpu_allocator if block.device.name == "GPU" else self.cpu_allocator
        allocator.free(block)
        block_table.remove(block)
