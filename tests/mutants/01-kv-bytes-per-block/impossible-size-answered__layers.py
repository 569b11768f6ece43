"""Only the size of a block can be wrong; the rest comes from the model."""


def kv_bytes_per_block(block_size, num_layers, num_kv_heads, head_dim, dtype_bytes):
    if block_size < 1:
        raise ValueError("block_size must be 1 or more")
    return 2 * block_size * num_layers * num_kv_heads * head_dim * dtype_bytes
