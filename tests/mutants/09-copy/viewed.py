"""A pool can be viewed with its blocks made flat."""


def copy_blocks(kv_cache, pairs):
    flat = kv_cache.view(*kv_cache.shape[:3], -1)
    blocks = [flat[:, :, source].clone() for source, _ in pairs]
    for (_, destination), block in zip(pairs, blocks, strict=True):
        flat[:, :, destination] = block
