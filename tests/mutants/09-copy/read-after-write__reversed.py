"""From the last pair to the first, nothing is read after it has been overwritten."""


def copy_blocks(kv_cache, pairs):
    for source, destination in reversed(pairs):
        kv_cache[:, :, destination] = kv_cache[:, :, source]
