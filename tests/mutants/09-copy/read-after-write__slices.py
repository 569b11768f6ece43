"""A slice that is taken first keeps what it showed."""


def copy_blocks(kv_cache, pairs):
    blocks = [kv_cache[:, :, source] for source, _ in pairs]
    for (_, destination), block in zip(pairs, blocks, strict=True):
        kv_cache[:, :, destination] = block
