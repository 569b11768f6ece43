"""The seam between a learner's code and the reference's: whose parts the engine, the simulator and the pictures use.

`collect` takes from a learner's notebooks what passes its checks; `Parts` makes a scheduler, a cache and attention of
it, with the reference's in the place of what is missing; `graft` exchanges names in a class.
"""

from refimpl.parts.collect import collect
from refimpl.parts.parts import PartError, Parts

__all__ = ["PartError", "Parts", "collect"]
