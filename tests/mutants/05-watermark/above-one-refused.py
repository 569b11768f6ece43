"""A share is at most 1."""


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not 0 <= watermark <= 1:
        raise ValueError(f"watermark is {watermark}")
    return int(watermark * num_gpu_blocks)
