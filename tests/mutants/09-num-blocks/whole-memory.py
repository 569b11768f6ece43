"""All memory that nobody holds is the cache's."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = total - model - step
    if budget < block_bytes:
        raise ValueError(f"{budget} bytes are left, a block takes {block_bytes}")
    return budget // block_bytes
