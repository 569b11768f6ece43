"""The one door to all pictures: `from refimpl.viz import draw`, then `draw.pool(...)`.

Each function takes live objects, the learner's own too, and returns a `Picture` that says the same in words and never
changes with the objects behind it. The files beside this one hold one picture each; `sheet` holds what they share.
"""

from refimpl.viz.owners import Block
from refimpl.viz.pool import pool
from refimpl.viz.sheet import Picture

__all__ = ["Block", "Picture", "pool"]
