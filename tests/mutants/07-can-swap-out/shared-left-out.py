"""A shared block stays where it is, since somebody else still holds it."""


def can_swap_out(self, group):
    own = [block for block in self._distinct_blocks(group) if block.ref_count == 1]
    return len(own) <= self.cpu_allocator.get_num_free_blocks()
