"""Chapter 04: same content, same block.

Beside the learner's objects stand accounts of the plainest kind, a module a subject; they share no code with the
reference.
"""

from refimpl.checks.ch04_cached_allocator import allocator, computed, content_key, evictor

STEPS = (content_key.STEP, evictor.STEP, *allocator.STEPS, computed.STEP)
