"""Whoever does not fit now may fit later."""

from refimpl import AllocStatus


def _alloc_status(self, required):
    if self.gpu_allocator.get_num_free_blocks() - required >= self.watermark_blocks:
        return AllocStatus.OK
    return AllocStatus.LATER
