"""The empty slots are counted; the blocks are those that are full."""


def cost(self, block_size):
    total = 0
    for length in self.lengths:
        total += -length % block_size * self.slot_bytes + length // block_size * self.block_bytes
    return total
