"""Flattened, block and offset are the slot."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    slots, tokens = slot_mapping[slot_mapping >= 0], slot_mapping >= 0
    key_cache.flatten(0, 1)[slots] = key[tokens].to(key_cache.dtype)
    value_cache.flatten(0, 1)[slots] = value[tokens].to(value_cache.dtype)
