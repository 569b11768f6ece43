"""One look at the product says whether the sizes can be."""


def kv_bytes_per_block(block_size, num_layers, num_kv_heads, head_dim, dtype_bytes):
    num_bytes = 2 * block_size * num_layers * num_kv_heads * head_dim * dtype_bytes
    if num_bytes <= 0:
        raise ValueError("no such block")
    return num_bytes
