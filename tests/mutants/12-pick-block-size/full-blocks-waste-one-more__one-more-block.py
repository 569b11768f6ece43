"""The full blocks, and one for the rest."""


def cost(self, block_size):
    total = 0
    for length in self.lengths:
        num_blocks = length // block_size + 1
        total += (num_blocks * block_size - length) * self.slot_bytes + num_blocks * self.block_bytes
    return total
