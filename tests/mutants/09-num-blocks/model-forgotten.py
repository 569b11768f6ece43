"""The share that is asked for is what the cache gets, apart from a step's work."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = int(total * utilization) - step
    if budget < block_bytes:
        raise ValueError(f"{budget} bytes are left, a block takes {block_bytes}")
    return budget // block_bytes
