"""Freed is freed, whoever else holds it."""


def _free_block_table(self, block_table):
    for block in block_table:
        allocator = self.gpu_allocator if block.device.name == "GPU" else self.cpu_allocator
        block.ref_count = 1
        allocator.free(block)
