"""Without the padding's slots, the first tokens take what is left."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    block_size = key_cache.shape[1]
    slots = slot_mapping[slot_mapping >= 0]
    blocks, offsets = slots // block_size, slots % block_size
    key_cache[blocks, offsets] = key[: len(slots)].to(key_cache.dtype)
    value_cache[blocks, offsets] = value[: len(slots)].to(value_cache.dtype)
