"""Pictures of live block managers: `draw` makes them with matplotlib, `widgets` moves through them.

Nothing is imported here, so `import refimpl.viz` is as light as the core; `from refimpl.viz import draw` is what loads
matplotlib.
"""
