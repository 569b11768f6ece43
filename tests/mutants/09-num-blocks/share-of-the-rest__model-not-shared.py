"""What a step takes is nobody's share, and the model comes out of ours."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = int((total - step) * utilization) - model
    if budget < block_bytes:
        raise ValueError(f"{budget} bytes are left, a block takes {block_bytes}")
    return budget // block_bytes
