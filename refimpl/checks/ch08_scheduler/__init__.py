"""Chapter 08: who runs in the next step, who makes room, who comes back.

A module a step: the thoughts that it tells, each an account that takes one decision otherwise; the histories that are
played first, in which `add` is followed by a request, its tokens, its sequences, which text it is, and whether it came
before the others; and the sentences.
"""

from refimpl.checks.ch08_scheduler import preempt, prefills, running, schedule, swapped

STEPS = (prefills.STEP, running.STEP, preempt.STEP, swapped.STEP, schedule.STEP)
