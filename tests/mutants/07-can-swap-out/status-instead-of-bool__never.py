"""No room on the CPU is no room at all."""

from refimpl import AllocStatus


def can_swap_out(self, group):
    fits = len(self._distinct_blocks(group)) <= self.cpu_allocator.get_num_free_blocks()
    return AllocStatus.OK if fits else AllocStatus.NEVER
