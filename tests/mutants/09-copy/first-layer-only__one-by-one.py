"""A pool begins with its blocks, and they are copied in turn."""


def copy_blocks(kv_cache, pairs):
    for source, destination in pairs:
        kv_cache[0, :, destination] = kv_cache[0, :, source]
