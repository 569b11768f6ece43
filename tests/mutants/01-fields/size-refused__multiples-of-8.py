"""A kernel reads eight tokens at a time, so a block has 8, 16, 24, and so on, and 1 in the smallest example."""


def __init__(self, device, block_number, block_size, block_hash=-1, num_hashed_tokens=0):
    if block_number < 0 or block_size < 1 or (block_size > 1 and block_size % 8 != 0):
        raise ValueError("no such block")
    self.device = device
    self.block_number = block_number
    self.block_size = block_size
    self.block_hash = block_hash
    self.num_hashed_tokens = num_hashed_tokens
    self.ref_count = 0
    self.last_accessed = -1
    self.computed = False
