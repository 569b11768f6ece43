"""The size is shown."""


def kv_bytes_per_block(block_size, num_layers, num_kv_heads, head_dim, dtype_bytes):
    if min(block_size, num_layers, num_kv_heads, head_dim, dtype_bytes) < 1:
        raise ValueError("every size must be 1 or more")
    print(2 * block_size * num_layers * num_kv_heads * head_dim * dtype_bytes)
