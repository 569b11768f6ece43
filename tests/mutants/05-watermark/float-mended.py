"""0.29 of 100 is 29, whatever floats say."""

import math
from fractions import Fraction


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < math.inf:
        raise ValueError(f"watermark is {watermark}")
    return int(Fraction(str(watermark)) * num_gpu_blocks)
