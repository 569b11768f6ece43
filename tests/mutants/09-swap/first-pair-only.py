"""One block at a time is swapped."""


def swap_blocks(source, destination, pairs):
    if pairs:
        first, second = pairs[0]
        destination[:, :, second] = source[:, :, first]
