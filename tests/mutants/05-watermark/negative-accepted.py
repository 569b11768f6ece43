"""Nobody passes a negative share."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not math.isfinite(watermark):
        raise ValueError(f"watermark is {watermark}")
    return int(watermark * num_gpu_blocks)
