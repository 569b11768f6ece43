"""The answer is kept on the manager, where everybody finds it."""

from refimpl import AllocStatus


def _alloc_status(self, required):
    self.status = AllocStatus.LATER
    if self.num_total_gpu_blocks - required < self.watermark_blocks:
        self.status = AllocStatus.NEVER
    elif self.gpu_allocator.get_num_free_blocks() - required >= self.watermark_blocks:
        self.status = AllocStatus.OK
