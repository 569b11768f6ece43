"""A cache is rows of slots, and a write is one assignment."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    key_cache.view(-1, *key_cache.shape[2:])[slot_mapping] = key
    value_cache.view(-1, *value_cache.shape[2:])[slot_mapping] = value
