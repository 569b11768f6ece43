"""No heads take no memory."""


def kv_bytes_per_block(block_size, num_layers, num_kv_heads, head_dim, dtype_bytes):
    return 2 * block_size * num_layers * num_kv_heads * head_dim * dtype_bytes
