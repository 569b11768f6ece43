"""Only less than nothing is too little."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = int(utilization * total) - model - step
    if budget < 0:
        raise ValueError(f"{budget} bytes are left")
    return budget // block_bytes
