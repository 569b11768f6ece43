"""Waste is measured by how full the reservation is, in per cent."""


def wasted_slots(reserved, used):
    return 100 * used / reserved
