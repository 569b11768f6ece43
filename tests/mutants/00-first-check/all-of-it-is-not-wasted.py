"""A reservation is waste, all of it."""


def wasted_slots(reserved, used):
    return reserved
