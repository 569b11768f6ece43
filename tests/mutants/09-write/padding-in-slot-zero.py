"""Padding is put where it does no harm: slot 0."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    block_size = key_cache.shape[1]
    for i, slot in enumerate(slot_mapping.tolist()):
        block, offset = divmod(max(slot, 0), block_size)
        key_cache[block, offset] = key[i]
        value_cache[block, offset] = value[i]
