"""A float without anything after the point is a whole number."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    return float(math.trunc(watermark * num_gpu_blocks))
