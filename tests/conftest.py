"""What holds for every test: one thread for torch, and which tests need the machine to themselves.

`make test` runs two tests at a time, those marked `alone` one after another afterwards. Without a mark a test may not
measure time on the clock, and shares no file, port or folder with another.
"""

import os
from pathlib import Path

import pytest

# Before torch is imported, here and in the processes that tests start: two threads on a busy machine wait for each
# other at every product, tens of times slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

BROWSER = Path(__file__).parent / "browser"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: measures time on the clock, or drives a browser: nothing runs beside it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(BROWSER):
            item.add_marker(pytest.mark.alone)
