"""To show the number is to answer."""


def wasted_slots(reserved, used):
    print(reserved - used)
