"""gpu_memory_utilization is the cache's share of the memory."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = int(total * utilization)
    if budget < block_bytes:
        raise ValueError(f"{budget} bytes are left, a block takes {block_bytes}")
    return budget // block_bytes
