"""The tokens come on top of the reservation."""


def wasted_slots(reserved, used):
    return reserved + used
