"""A pool without any reserve would thrash."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    return max(1, int(watermark * num_gpu_blocks))
