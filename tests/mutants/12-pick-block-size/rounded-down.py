"""A length holds its block size so many times."""


def cost(self, block_size):
    blocks = sum(length // block_size for length in self.lengths)
    return (blocks * block_size - sum(self.lengths)) * self.slot_bytes + blocks * self.block_bytes
