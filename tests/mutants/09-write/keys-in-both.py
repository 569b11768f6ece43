"""What is written to one cache is written to the other."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    block_size = key_cache.shape[1]
    written = slot_mapping >= 0
    slots = slot_mapping[written]
    blocks, offsets = slots // block_size, slots % block_size
    for cache in (key_cache, value_cache):
        cache[blocks, offsets] = key[written].to(cache.dtype)
