"""What has been copied is no longer needed where it was."""


def copy_blocks(kv_cache, pairs):
    blocks = [kv_cache[:, :, source].clone() for source, _ in pairs]
    for (_, destination), block in zip(pairs, blocks, strict=True):
        kv_cache[:, :, destination] = block
    for source in {source for source, _ in pairs} - {destination for _, destination in pairs}:
        kv_cache[:, :, source] = 0
