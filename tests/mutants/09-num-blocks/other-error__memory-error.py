"""Too little memory is a MemoryError."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = int(utilization * total) - model - step
    if budget < block_bytes:
        raise MemoryError("not a single block fits")
    return budget // block_bytes
