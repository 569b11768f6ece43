"""Without the padding, a write is one assignment to rows of slots."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    written = slot_mapping >= 0
    key_cache.reshape(-1, *key.shape[1:])[slot_mapping[written]] = key[written]
    value_cache.reshape(-1, *value.shape[1:])[slot_mapping[written]] = value[written]
