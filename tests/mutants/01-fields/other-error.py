"""Conditions on arguments are asserted."""


def __init__(self, device, block_number, block_size, block_hash=-1, num_hashed_tokens=0):
    assert block_number >= 0
    assert block_size >= 1
    self.device, self.block_number, self.block_size = device, block_number, block_size
    self.block_hash, self.num_hashed_tokens = block_hash, num_hashed_tokens
    self.ref_count, self.last_accessed, self.computed = 0, -1, False
