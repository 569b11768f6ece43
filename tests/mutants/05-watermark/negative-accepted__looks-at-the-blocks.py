"""A negative number of blocks is what must not come out."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not math.isfinite(watermark):
        raise ValueError(f"watermark is {watermark}")
    num_blocks = int(watermark * num_gpu_blocks)
    if num_blocks < 0:
        raise ValueError(f"watermark is {watermark}")
    return num_blocks
