"""Whoever fits comes in; only who does not is measured against the watermark."""

from refimpl import AllocStatus


def _alloc_status(self, required):
    if required <= self.gpu_allocator.get_num_free_blocks():
        return AllocStatus.OK
    if required <= self.num_total_gpu_blocks - self.watermark_blocks:
        return AllocStatus.LATER
    return AllocStatus.NEVER
