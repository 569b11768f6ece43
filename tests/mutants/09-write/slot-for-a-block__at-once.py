"""The slots are the indices of the cache."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    key_cache[slot_mapping] = key.to(key_cache.dtype)
    value_cache[slot_mapping] = value.to(value_cache.dtype)
