"""Blocks are the axis behind the layers."""


def copy_blocks(kv_cache, pairs):
    for source, destination in pairs:
        kv_cache[:, destination] = kv_cache[:, source].clone()
