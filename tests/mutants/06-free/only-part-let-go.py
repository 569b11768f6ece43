"""The last block is the one that the sequence wrote."""


def _free_block_table(self, block_table):
    for block in block_table[-1:]:
        allocator = self.gpu_allocator if block.device.name == "GPU" else self.cpu_allocator
        allocator.free(block)
