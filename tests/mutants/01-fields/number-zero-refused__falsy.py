"""No number, no block."""


def __init__(self, device, block_number, block_size, block_hash=-1, num_hashed_tokens=0):
    if not block_number or block_number < 0:
        raise ValueError("a block needs a number")
    if not block_size or block_size < 0:
        raise ValueError("a block needs a size")
    self.device, self.block_number, self.block_size = device, block_number, block_size
    self.block_hash, self.num_hashed_tokens = block_hash, num_hashed_tokens
    self.ref_count, self.last_accessed, self.computed = 0, -1, False
