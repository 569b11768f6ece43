"""Whoever fits comes in, and everybody else waits."""

from refimpl import AllocStatus


def _alloc_status(self, required):
    if self.gpu_allocator.get_num_free_blocks() >= required:
        return AllocStatus.OK
    return AllocStatus.LATER
