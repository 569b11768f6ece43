"""To swap is to exchange."""


def swap_blocks(source, destination, pairs):
    for first, second in pairs:
        block = source[:, :, first].clone()
        source[:, :, first] = destination[:, :, second]
        destination[:, :, second] = block
