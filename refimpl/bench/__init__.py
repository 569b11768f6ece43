"""What this package costs: one module for each thing that `python -m refimpl bench` measures."""
