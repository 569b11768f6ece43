"""Nobody frees a block twice."""


def free(self, block):
    block.ref_count -= 1
    if block.ref_count <= 0:
        self.free_blocks.append(block)
