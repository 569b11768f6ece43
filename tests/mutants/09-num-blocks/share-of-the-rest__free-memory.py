"""Once the model is loaded, the share is taken of what is free."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    free = total - model
    budget = int(free * utilization) - step
    if budget < block_bytes:
        raise ValueError(f"{budget} bytes are left, a block takes {block_bytes}")
    return budget // block_bytes
