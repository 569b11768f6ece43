"""More than the watermark must be left, of what is free."""

from refimpl import AllocStatus


def _alloc_status(self, required):
    if required > self.num_total_gpu_blocks:
        return AllocStatus.NEVER
    if self.gpu_allocator.get_num_free_blocks() - required > self.watermark_blocks:
        return AllocStatus.OK
    return AllocStatus.LATER
