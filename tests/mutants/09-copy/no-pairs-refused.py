"""Where there is copying there are pairs."""


def copy_blocks(kv_cache, pairs):
    sources, destinations = zip(*pairs, strict=True)
    kv_cache[:, :, list(destinations)] = kv_cache[:, :, list(sources)]
