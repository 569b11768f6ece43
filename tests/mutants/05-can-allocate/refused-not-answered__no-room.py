"""Where there is no room now, that is an error."""

from refimpl import AllocStatus


def _alloc_status(self, required):
    if self.num_total_gpu_blocks - required < self.watermark_blocks:
        return AllocStatus.NEVER
    if self.gpu_allocator.get_num_free_blocks() - required >= self.watermark_blocks:
        return AllocStatus.OK
    raise ValueError(f"{required} blocks do not fit now")
