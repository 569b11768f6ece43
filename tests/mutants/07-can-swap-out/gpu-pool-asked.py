"""Free blocks are free GPU blocks."""


def can_swap_out(self, group):
    return len(self._distinct_blocks(group)) <= self.gpu_allocator.get_num_free_blocks()
