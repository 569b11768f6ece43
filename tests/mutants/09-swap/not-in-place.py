"""The new pool is the result."""


def swap_blocks(source, destination, pairs):
    swapped = destination.clone()
    for first, second in pairs:
        swapped[:, :, second] = source[:, :, first]
    return swapped
