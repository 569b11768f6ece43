"""The key stays where it is, since it may come again."""


def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    block.ref_count -= 1
    if block.ref_count == 0:
        self.evictor.add(block)
