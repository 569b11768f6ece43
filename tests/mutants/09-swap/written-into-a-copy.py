"""Pools with their blocks made flat are the same memory."""


def swap_blocks(source, destination, pairs):
    flat_source = source.reshape(*source.shape[:3], -1)
    flat = destination.reshape(*destination.shape[:3], -1)
    for first, second in pairs:
        flat[:, :, second] = flat_source[:, :, first]
