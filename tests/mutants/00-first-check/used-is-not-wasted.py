"""What a request takes up is what it wastes."""


def wasted_slots(reserved, used):
    return used
