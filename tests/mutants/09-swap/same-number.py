"""A block keeps its number when it moves."""


def swap_blocks(source, destination, pairs):
    for first, _ in pairs:
        destination[:, :, first] = source[:, :, first]
