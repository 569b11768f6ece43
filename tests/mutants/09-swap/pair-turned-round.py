"""The first number says where to, the second where from."""


def swap_blocks(source, destination, pairs):
    for first, second in pairs:
        destination[:, :, first] = source[:, :, second]
