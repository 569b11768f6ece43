"""When a block has been copied, the work is done."""


def copy_blocks(kv_cache, pairs):
    for source, destination in pairs:
        kv_cache[:, :, destination] = kv_cache[:, :, source].clone()
        return
