"""`python -m refimpl bench`: every row runs and says a number; what cannot be measured is said."""

import json

import pytest

from refimpl.bench import manager
from refimpl.cli import main

SMALL = [name for name in manager.ROWS if "256k" not in name]


@pytest.mark.parametrize("name", SMALL)
def test_every_row_takes_some_time(name):
    assert manager.measure(name, seconds=0.0) > 0


def test_figures_as_json(capsys):
    assert main(["bench", "manager", "--rows", "swap", "--seconds", "0", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["swap_out_in_64_blocks"]


def test_an_unknown_row_is_said(capsys):
    assert main(["bench", "manager", "--rows", "nothing"]) == 2
    assert "alloc_free_512_uncached" in capsys.readouterr().out


def test_what_is_evicted_costs_the_same_in_a_pool_sixteen_times_as_large():
    """V0 scans every block of an equal stamp: 20 times the cost here, against a heap of runs that hardly grows."""
    small, large = (manager.measure(f"alloc_free_512_evict_equal_stamps_{size}k_blocks", 0.3) for size in (1, 16))
    assert large < 5 * small
