"""It fits or it does not."""


def _alloc_status(self, required):
    return self.gpu_allocator.get_num_free_blocks() - required >= self.watermark_blocks
