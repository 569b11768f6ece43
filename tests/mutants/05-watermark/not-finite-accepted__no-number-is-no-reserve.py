"""What is not a number keeps nothing back."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if watermark < 0 or watermark == math.inf:
        raise ValueError(f"watermark is {watermark}")
    if math.isnan(watermark):
        return 0
    return int(watermark * num_gpu_blocks)
