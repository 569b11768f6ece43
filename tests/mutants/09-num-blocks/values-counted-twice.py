"""A block takes its bytes twice, for keys and for values."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = int(utilization * total) - model - step
    both = 2 * block_bytes
    if budget < both:
        raise ValueError(f"{budget} bytes are left, a block takes {both}")
    return budget // both
