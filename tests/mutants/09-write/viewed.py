"""A cache is rows of slots, so it can be viewed as such."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    slots, tokens = slot_mapping[slot_mapping >= 0], slot_mapping >= 0
    key_cache.view(-1, *key_cache.shape[2:])[slots] = key[tokens].to(key_cache.dtype)
    value_cache.view(-1, *value_cache.shape[2:])[slots] = value[tokens].to(value_cache.dtype)
