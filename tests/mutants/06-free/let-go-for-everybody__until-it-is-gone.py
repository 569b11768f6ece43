"""A block is free when its count is zero, so bring it there."""


def _free_block_table(self, block_table):
    for block in block_table:
        allocator = self.gpu_allocator if block.device.name == "GPU" else self.cpu_allocator
        while block.ref_count:
            allocator.free(block)
