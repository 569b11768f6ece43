"""A wrong argument is a failed assertion."""

import math


def num_watermark_blocks(watermark, num_gpu_blocks):
    assert 0 <= watermark < math.inf
    return int(watermark * num_gpu_blocks)
