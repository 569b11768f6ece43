"""The blocks are copied in the pool to which they go."""


def swap_blocks(source, destination, pairs):
    for first, second in pairs:
        destination[:, :, second] = destination[:, :, first].clone()
