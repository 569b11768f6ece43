"""Waste is a share of the reservation."""


def wasted_slots(reserved, used):
    return (reserved - used) / reserved
