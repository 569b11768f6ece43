"""The cache's size is its bytes."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = int(utilization * total) - model - step
    if budget < block_bytes:
        raise ValueError(f"{budget} bytes are left, a block takes {block_bytes}")
    return budget
