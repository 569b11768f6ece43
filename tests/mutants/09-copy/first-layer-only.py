"""A pool begins with its blocks, in the first layer."""


def copy_blocks(kv_cache, pairs):
    blocks = [kv_cache[0, :, source].clone() for source, _ in pairs]
    for (_, destination), block in zip(pairs, blocks, strict=True):
        kv_cache[0, :, destination] = block
