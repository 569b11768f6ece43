"""Pictures of live block managers: `draw` (matplotlib) for lessons, widgets beside it.

Nothing is imported here, so `import refimpl.viz` stays as light as the core; `from refimpl.viz.draw import pool`
is what loads matplotlib.
"""
