"""How long the state machines run: HYPOTHESIS_PROFILE is "ci" (seconds, the same every time) or "nightly" (minutes)."""

import os

from hypothesis import HealthCheck, settings

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
settings.register_profile(
    "ci", max_examples=50, stateful_step_count=70, derandomize=True, deadline=None, suppress_health_check=SLOW_IS_FINE
)
settings.register_profile(
    "nightly", max_examples=400, stateful_step_count=100, deadline=None, suppress_health_check=SLOW_IS_FINE
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_terminal_summary(terminalreporter):
    """How many operations the state machines made and checked, and what happened in them."""
    from tests.core.checked_manager import CALLS, EVENTS

    for title, counter in (("operations", CALLS), ("events", EVENTS)) if CALLS else ():
        counts = ", ".join(f"{name} {count:,}" for name, count in counter.most_common())
        terminalreporter.write_line(f"state machines: {counter.total():,} {title}: {counts}")
