"""Any error will do."""


def free(self, block):
    assert block.ref_count > 0, "double free"
    block.ref_count -= 1
    if block.ref_count == 0:
        self.free_blocks.append(block)
