"""The sum says how many, whatever comes out."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    return int(utilization * total - model - step) // block_bytes
