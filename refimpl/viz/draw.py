"""The one door to all pictures: `from refimpl.viz import draw`, then `draw.pool(...)`.

Each function takes live objects, the learner's own too, and returns a `Picture` that says the same in words and never
changes with the objects behind it. The files beside this one hold one picture each; `sheet` holds what they share.
"""

from refimpl.viz.admission import admission
from refimpl.viz.attention_gather import attention_gather
from refimpl.viz.compare import compare
from refimpl.viz.memory import memory
from refimpl.viz.newest_token import newest_token
from refimpl.viz.owners import Block
from refimpl.viz.pool import pool
from refimpl.viz.sheet import Picture
from refimpl.viz.sweep import sweep
from refimpl.viz.tables import tables
from refimpl.viz.timeline import timeline
from refimpl.viz.waste import waste

__all__ = [
    "Block",
    "Picture",
    "admission",
    "attention_gather",
    "compare",
    "memory",
    "newest_token",
    "pool",
    "sweep",
    "tables",
    "timeline",
    "waste",
]
