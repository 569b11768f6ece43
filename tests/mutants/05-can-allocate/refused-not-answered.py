"""What can never fit is an error."""

from refimpl import AllocStatus


def _alloc_status(self, required):
    if self.num_total_gpu_blocks - required < self.watermark_blocks:
        raise ValueError(f"{required} blocks never fit")
    if self.gpu_allocator.get_num_free_blocks() - required >= self.watermark_blocks:
        return AllocStatus.OK
    return AllocStatus.LATER
