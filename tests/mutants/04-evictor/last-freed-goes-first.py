"""As in chapter 3: what came back last goes out first."""


def evict(self):
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    _, victim = self.free_blocks.popitem()
    victim.computed = False
    return victim
