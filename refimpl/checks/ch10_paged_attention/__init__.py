"""Chapter 10: attention through a block table, from gathering to a kernel.

A module a step; torch is loaded when a check runs.
"""

from refimpl.checks.ch10_paged_attention import gather, gqa, kernel, merge, online_softmax

STEPS = (gather.STEP, gqa.STEP, online_softmax.STEP, merge.STEP, kernel.STEP)
