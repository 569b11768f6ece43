"""Keys are what attention looks at."""


def swap_blocks(source, destination, pairs):
    for first, second in pairs:
        destination[:, 0, second] = source[:, 0, first]
