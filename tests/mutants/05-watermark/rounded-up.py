"""A reserve that is too small is no reserve."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    return math.ceil(watermark * num_gpu_blocks)
