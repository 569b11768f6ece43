"""A destination can be viewed with its blocks made flat."""


def swap_blocks(source, destination, pairs):
    flat = destination.view(*destination.shape[:3], -1)
    for first, second in pairs:
        flat[:, :, second] = source[:, :, first].flatten(2)
