"""Where there is swapping there are pairs."""


def swap_blocks(source, destination, pairs):
    sources, destinations = zip(*pairs, strict=True)
    destination[:, :, list(destinations)] = source[:, :, list(sources)]
