"""There is at most one pair, as in append_slots."""


def copy_blocks(kv_cache, pairs):
    if pairs:
        source, destination = pairs[0]
        kv_cache[:, :, destination] = kv_cache[:, :, source].clone()
