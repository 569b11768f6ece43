"""The wasted slots, counted one by one."""


def wasted_slots(reserved, used):
    return sum(1 for slot in range(reserved) if slot >= used)
