"""A pool must not be filled to the brim."""


def can_swap_out(self, group):
    return len(self._distinct_blocks(group)) < self.cpu_allocator.get_num_free_blocks()
