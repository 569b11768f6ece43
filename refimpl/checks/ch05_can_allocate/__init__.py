"""Chapter 05: who may come in, how many blocks are kept back, and the block tables of whoever does.

The answers are compared with an account that counts owners and nothing else.
"""

from refimpl.checks.ch05_can_allocate import allocate, can_allocate, watermark

STEPS = (watermark.STEP, can_allocate.STEP, allocate.STEP)
