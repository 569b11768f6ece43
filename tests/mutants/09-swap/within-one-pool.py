"""The blocks are copied in the pool that was given first."""


def swap_blocks(source, destination, pairs):
    for first, second in pairs:
        source[:, :, second] = source[:, :, first].clone()
