"""Floor division of the negative rounds the other way."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    return int(-(-watermark * num_gpu_blocks // 1))
