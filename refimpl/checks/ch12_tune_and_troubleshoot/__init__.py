"""Chapter 12: what a log says, who makes room, which block size costs least, what a hash does not prove.

Each account is one of the plainest kind. Beside it stand theories, which answer as somebody would who thinks so. A
wrong answer is named when one thought alone explains it and the answers to the probes.
"""

from refimpl.checks.ch12_tune_and_troubleshoot import choose_victim, collision, pick_block_size, read_the_log

STEPS = (read_the_log.STEP, choose_victim.STEP, pick_block_size.STEP, collision.STEP)
