"""It is enough to work it out."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    int(watermark * num_gpu_blocks)
