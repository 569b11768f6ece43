"""Who asks for room is told OK, LATER or NEVER."""

from refimpl import AllocStatus


def can_swap_out(self, group):
    fits = len(self._distinct_blocks(group)) <= self.cpu_allocator.get_num_free_blocks()
    return AllocStatus.OK if fits else AllocStatus.LATER
