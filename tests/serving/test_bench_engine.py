"""`python -m refimpl bench engine`: every row does what its name says, and says it."""

from __future__ import annotations

import json

import pytest

from refimpl.bench import engine as bench
from refimpl.cli import main
from refimpl.serving.weights import load_model


@pytest.fixture(scope="module")
def measured(tiny_folder):
    model = load_model(tiny_folder)
    rows = bench.rows_of(6, 20, model.network.config.vocab_size)
    return {row.name: bench.measure_row(model, row, 20) for row in rows}


def test_only_small_pools_preempt(measured):
    preempting = {name for name, row in measured.items() if row.preemptions}
    assert preempting == {name for name in measured if "half" in name}
    swapping = {name for name, row in measured.items() if row.bytes_swapped}
    assert swapping == {"pool for half of them, swap"}


def test_only_prefix_caching_hits(measured):
    """Each of 6 prompts of 400 tokens finds 384, 24 blocks of 16."""
    hits = {name: row.cache_hit_rate for name, row in measured.items() if row.cache_hit_rate}
    assert hits == {"384 tokens in common, prefix caching": 384 / 400}


def test_speed_counts_what_was_generated(measured):
    assert {row.generated_tokens for name, row in measured.items() if name != "1 request"} == {6 * 20}
    assert measured["1 request"].generated_tokens == 20
    for row in measured.values():
        assert row.tokens_per_second == row.generated_tokens / row.seconds


def test_the_command_prints_a_table_or_json(tiny_folder, capsys):
    arguments = ["bench", "engine", "--model", str(tiny_folder), "--requests", "2", "--max-tokens", "2", "--rounds"]
    assert main([*arguments, "1"]) == 0
    printed = capsys.readouterr().out
    assert "2 requests" in printed
    assert "tokens/s" in printed
    assert main([*arguments, "2", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [len(rounds) for rounds in record.values()] == [2] * 6
    assert record["2 requests"][0]["generated_tokens"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--rounds", "0"], "--rounds is 0, it must be 1 or more"), (["--model", "nowhere"], "no model 'nowhere'")],
)
def test_what_cannot_run_is_one_sentence(arguments, message, capsys):
    assert main(["bench", "engine", *arguments]) == 2
    assert message in capsys.readouterr().err
