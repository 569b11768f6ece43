"""The block size is the axis before the last."""


def reshape_and_cache(key, value, key_cache, value_cache, slot_mapping):
    block_size = key_cache.shape[-2]
    written = slot_mapping >= 0
    slots = slot_mapping[written]
    blocks, offsets = slots // block_size, slots % block_size
    key_cache[blocks, offsets] = key[written].to(key_cache.dtype)
    value_cache[blocks, offsets] = value[written].to(value_cache.dtype)
