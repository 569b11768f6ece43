"""Real failures of systems like this one that are tests here, by the ids they carry in names and docstrings.

A: block manager. E: nbval. F: grading. `tests/README.md` says where the ids come from and which are still to come.
"""

import re
from pathlib import Path

import pytest

CASES = """
A01 A05 A06 A07 A09 A14 A17 A20 A22
E01 E02 E03 E05 E07 E08 E09 E11 E12 E13 E16 E17 E19 E20
F17
"""

ROOT = Path(__file__).parent
TESTS = "\n".join(path.read_text() for path in ROOT.rglob("test_*.py") if path != Path(__file__))


@pytest.mark.parametrize("case", CASES.split())
def test_every_case_is_named_by_a_test(case):
    assert re.search(rf"(?<![A-Za-z0-9]){case}(?![0-9])", TESTS), f"no test names {case}"
