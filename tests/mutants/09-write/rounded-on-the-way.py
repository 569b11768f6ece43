"""Caches are half precision."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    block_size = key_cache.shape[1]
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            key_cache[slot // block_size, slot % block_size] = key[token].half()
            value_cache[slot // block_size, slot % block_size] = value[token].half()
