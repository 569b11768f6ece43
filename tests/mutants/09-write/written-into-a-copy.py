"""A cache reshaped into rows of slots is the same memory."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    slots, tokens = slot_mapping[slot_mapping >= 0], slot_mapping >= 0
    key_rows = key_cache.reshape(-1, *key_cache.shape[2:])
    value_rows = value_cache.reshape(-1, *value_cache.shape[2:])
    key_rows[slots] = key[tokens].to(key_rows.dtype)
    value_rows[slots] = value[tokens].to(value_rows.dtype)
