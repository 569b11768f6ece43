"""The first number says where to, the second where from."""


def copy_blocks(kv_cache, pairs):
    blocks = [kv_cache[:, :, source].clone() for _, source in pairs]
    for (destination, _), block in zip(pairs, blocks, strict=True):
        kv_cache[:, :, destination] = block
