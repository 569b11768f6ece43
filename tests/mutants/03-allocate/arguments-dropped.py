"""What is ignored can be left out."""


def allocate(self):
    if not self.free_blocks:
        raise ValueError(f"all {self.num_blocks} blocks are in use")
    block = self.free_blocks.pop()
    block.ref_count = 1
    return block
