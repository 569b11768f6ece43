"""A watermark is given in per cent."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    return int(watermark / 100 * num_gpu_blocks)
