"""Too little memory is an assertion that fails."""


def num_gpu_blocks(total, utilization, model, step, block_bytes):
    budget = int(utilization * total) - model - step
    assert budget >= block_bytes, "not a single block fits"
    return budget // block_bytes
