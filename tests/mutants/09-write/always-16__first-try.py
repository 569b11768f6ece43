"""Blocks hold 16 tokens, and every token is written."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    for i, slot in enumerate(slot_mapping):
        key_cache[slot // 16, slot % 16] = key[i]
        value_cache[slot // 16, slot % 16] = value[i]
