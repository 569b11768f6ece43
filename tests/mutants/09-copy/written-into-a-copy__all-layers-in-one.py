"""Layers, keys and values are one long axis."""


def copy_blocks(kv_cache, pairs):
    layers = kv_cache.reshape(-1, *kv_cache.shape[2:])
    blocks = [layers[:, source].clone() for source, _ in pairs]
    for (_, destination), block in zip(pairs, blocks, strict=True):
        layers[:, destination] = block
