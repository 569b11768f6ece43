"""The one door to the widgets: `from refimpl.viz.widgets import PoolExplorer, StepPlayer`.

Needs ipywidgets, which `import refimpl.viz` does not load. Both widgets work with the keyboard alone, say in text what
they draw, and leave a picture and that text in the saved notebook.
"""

from refimpl.viz.widgets_base import lab_problem
from refimpl.viz.widgets_explorer import PoolExplorer
from refimpl.viz.widgets_player import StepPlayer

__all__ = ["PoolExplorer", "StepPlayer", "lab_problem"]
