"""A watermark is kept in every pool."""


def can_swap_out(self, group):
    free = self.cpu_allocator.get_num_free_blocks() - self.watermark_blocks
    return len(self._distinct_blocks(group)) <= free
