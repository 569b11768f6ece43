"""What others still use must not be freed."""


def _free_block_table(self, block_table):
    for block in block_table:
        if block.ref_count == 1:
            allocator = self.gpu_allocator if block.device.name == "GPU" else self.cpu_allocator
            allocator.free(block)
