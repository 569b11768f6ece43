"""Chapter 07: out to the CPU and back with the sharing intact, and the two questions that come first."""

from refimpl.checks.ch07_swap import moves, questions

STEPS = (questions.CAN_SWAP_OUT, moves.SWAP_OUT, questions.CAN_SWAP_IN, moves.SWAP_IN)
