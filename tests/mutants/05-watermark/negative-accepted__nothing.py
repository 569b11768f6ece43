"""Less than nothing is nothing."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not math.isfinite(watermark):
        raise ValueError(f"watermark is {watermark}")
    return max(0, int(watermark * num_gpu_blocks))
