"""A destination comes before its source."""


def copy_blocks(kv_cache, pairs):
    for destination, source in pairs:
        kv_cache[:, :, destination] = kv_cache[:, :, source].clone()
