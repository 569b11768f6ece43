"""A share of 2 or more must be a mistake."""


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark < 2:
        raise ValueError(f"watermark is {watermark}")
    return int(watermark * num_gpu_blocks)
