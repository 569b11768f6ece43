"""Whether it fits now is asked first, and what does not waits."""

from refimpl import AllocStatus


def _alloc_status(self, required):
    if self.gpu_allocator.get_num_free_blocks() - required < self.watermark_blocks:
        return AllocStatus.LATER
    if self.num_total_gpu_blocks - required < self.watermark_blocks:
        return AllocStatus.NEVER
    return AllocStatus.OK
