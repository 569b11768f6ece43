"""What a block gets, the other one gets from it."""


def copy_blocks(kv_cache, pairs):
    for source, destination in pairs:
        block = kv_cache[:, :, destination].clone()
        kv_cache[:, :, destination] = kv_cache[:, :, source]
        kv_cache[:, :, source] = block
