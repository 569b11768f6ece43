"""The new pool is the result."""


def copy_blocks(kv_cache, pairs):
    copied = kv_cache.clone()
    for source, destination in pairs:
        copied[:, :, destination] = kv_cache[:, :, source]
    return copied
