"""A slot is a row of the cache."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    for i, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            key_cache[slot] = key[i]
            value_cache[slot] = value[i]
