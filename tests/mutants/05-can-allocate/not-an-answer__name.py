"""An answer is a word."""


def _alloc_status(self, required):
    if self.num_total_gpu_blocks - required < self.watermark_blocks:
        return "NEVER"
    if self.gpu_allocator.get_num_free_blocks() - required >= self.watermark_blocks:
        return "OK"
    return "LATER"
