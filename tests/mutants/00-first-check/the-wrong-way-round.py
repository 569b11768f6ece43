"""The difference of two numbers is the same either way."""


def wasted_slots(reserved, used):
    return used - reserved
