"""Real failures of systems like this one that are tests here, by the ids they carry in names and docstrings.

A: block manager. B: prefix caching. C: swapping and scheduling. D: attention. E: nbval. F: grading. A case
that does not apply, or waits for a later layer, has a line in `cases.md` that says why.
"""

import re
from pathlib import Path

import pytest

CASES = """
A01 A03 A05 A06 A07 A09 A10 A12 A14 A15 A17 A19 A20 A22
B01 B02 B04 B06 B07 B09 B10 B12 B14 B17 B18 B19 B21 B22 B23
C01 C02 C04 C05 C07 C08 C10 C12 C13 C16 C17 C18 C19 C21 C23 C24 C27
D01 D02 D04 D05 D06 D08 D10 D11 D13 D15 D17 D18 D19 D21 D23
E01 E02 E03 E05 E07 E08 E09 E11 E12 E13 E16 E17 E19 E20
F01 F02 F03 F04 F07 F08 F10 F11 F12 F14 F15 F17 F19 F20
"""

ROOT = Path(__file__).parent
TESTS = "\n".join(path.read_text() for path in ROOT.rglob("test_*.py") if path != Path(__file__))

EXPLAINED = set(re.findall(r"^\| ([A-Z]\d\d) \|", (ROOT / "cases.md").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("case", CASES.split())
def test_every_case_is_named_by_a_test_or_explained(case):
    named = re.search(rf"(?<![A-Za-z0-9]){case}(?![0-9])", TESTS)
    assert named or case in EXPLAINED, f"no test names {case}, and cases.md does not say why"


def test_only_cases_are_explained():
    assert set(CASES.split()) >= EXPLAINED
