"""Chapter 09: how many blocks fit, where a token's keys and values go, and how blocks are copied and swapped.

The accounts are arithmetic over lists, and a dict for each pool: layer, keys or values, block and offset -> numbers. A
thought is a wrong way to do the same to the account. It is named when it alone explains everything that the learner's
code did, in the history at hand and in the step's examples (`thoughts.py`).
"""

from refimpl.checks.ch09_kv_cache_on_the_device import moves, num_blocks, slots, write

STEPS = (num_blocks.STEP, slots.STEP, write.STEP, *moves.STEPS)
