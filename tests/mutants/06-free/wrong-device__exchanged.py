"""What is on the GPU goes to the CPU, and the other way round."""


def _free_block_table(self, block_table):
    for block in block_table:
        allocator = self.cpu_allocator if block.device.name == "GPU" else self.gpu_allocator
        allocator.free(block)
