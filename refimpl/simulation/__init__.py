"""The real scheduler and block manager without a model: workloads, costs, recordings of what happened.

Nothing is imported here, and nothing below needs more than the standard library.
"""
