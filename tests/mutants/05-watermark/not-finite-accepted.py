"""An endless reserve is the whole pool."""


def num_watermark_blocks(watermark, num_gpu_blocks):
    if watermark < 0:
        raise ValueError(f"watermark is {watermark}")
    return int(min(watermark, 2) * num_gpu_blocks)
