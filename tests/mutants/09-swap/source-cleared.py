"""What has moved is no longer where it was."""


def swap_blocks(source, destination, pairs):
    for first, second in pairs:
        destination[:, :, second] = source[:, :, first]
    for first, _ in pairs:
        source[:, :, first] = 0
