"""A slice that gets another value changes the pool."""


def copy_blocks(kv_cache, pairs):
    for source, destination in pairs:
        block = kv_cache[:, :, destination]
        block = kv_cache[:, :, source].clone()  # noqa: F841
