"""Floor division cuts off what comes after the point."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    return watermark * num_gpu_blocks // 1
