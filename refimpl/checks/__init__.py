"""The graded checks: a module or a folder for each chapter, over one engine.

Beside the learner's code stands an account of what must hold, which shares no code with the reference.

`check` is what a notebook calls; `steps` is the one place for the ids and points of the exercises.
"""

from refimpl.checks.catalogue import steps
from refimpl.checks.engine import check
from refimpl.checks.notebook import add_to_class
from refimpl.checks.result import CheckResult

__all__ = ["CheckResult", "add_to_class", "check", "steps"]
