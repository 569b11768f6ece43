"""Where nothing fits, the answer is no block."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = int(utilization * total) - model - step
    return max(budget // block_bytes, 0)
