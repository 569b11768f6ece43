"""A float is rounded a little before anything is cut off."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    return int(round(watermark * num_gpu_blocks, 6))
