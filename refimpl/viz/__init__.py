"""Pictures of live block managers; `draw` makes them with matplotlib.

Nothing is imported here, so `import refimpl.viz` is as light as the core; `from refimpl.viz.draw import pool`
is what loads matplotlib.
"""
