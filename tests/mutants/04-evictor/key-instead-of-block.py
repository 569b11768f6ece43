"""The key is what is evicted."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    key = min(self.free_blocks, key=lambda key: self.free_blocks[key].last_accessed)
    self.free_blocks.pop(key).computed = False
    return key
