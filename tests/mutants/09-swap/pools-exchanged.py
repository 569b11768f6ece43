"""The first pool is where numbers go."""


def swap_blocks(source, destination, pairs):
    for first, second in pairs:
        source[:, :, first] = destination[:, :, second]
