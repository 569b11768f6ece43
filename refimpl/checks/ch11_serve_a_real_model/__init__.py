"""Chapter 11: an engine, from what a sequence has to compute to the answers of many requests.

No model runs here. A worker keeps notes in place of keys and values (`engine_account.NotingWorker`), and a request's
answer is known beforehand from the request alone; a real scheduler over tiny pools makes room by recompute and by swap
meanwhile.
"""

from refimpl.checks.ch11_serve_a_real_model import generate, one_step, prepare

STEPS = (prepare.STEP, one_step.STEP, generate.STEP)
