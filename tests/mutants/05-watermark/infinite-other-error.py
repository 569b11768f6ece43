"""Only a negative share is wrong."""


def num_watermark_blocks(watermark, num_gpu_blocks):
    if watermark < 0:
        raise ValueError(f"watermark is {watermark}")
    return int(watermark * num_gpu_blocks)
