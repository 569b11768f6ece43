"""A step brings one token."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    block_size, slot = key_cache.shape[1], int(slot_mapping[0]) if len(slot_mapping) else -1
    if slot >= 0:
        key_cache[slot // block_size, slot % block_size] = key[0]
        value_cache[slot // block_size, slot % block_size] = value[0]
