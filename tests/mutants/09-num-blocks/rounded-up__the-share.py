"""The share is rounded to whole bytes."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = round(utilization * total) - model - step
    if budget < block_bytes:
        raise ValueError(f"{budget} bytes hold no block")
    return budget // block_bytes
