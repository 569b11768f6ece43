"""A key that counts as false is no key."""


def __init__(self, device, block_number, block_size, block_hash=-1, num_hashed_tokens=0):
    if block_number < 0 or block_size < 1:
        raise ValueError(f"block {block_number} of {block_size} tokens cannot be")
    self.device, self.block_number, self.block_size = device, block_number, block_size
    self.block_hash, self.num_hashed_tokens = block_hash or -1, num_hashed_tokens
    self.ref_count, self.last_accessed, self.computed = 0, -1, False
