"""A share of the pool is a share of the pool."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    return watermark * num_gpu_blocks
