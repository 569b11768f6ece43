"""The record and the table: what a histogram may be off by, what adds up, what a reader sees."""

import json
import math
import random

import pytest
from machines import make_simulator, request

from refimpl.simulation.cost_model import CostModel
from refimpl.simulation.results import Histogram, table

PRICES = CostModel(1.0, 0.5, 0.25, 0.125, 0.0625, kv_bytes_per_token=2)


def run_two():
    return make_simulator(8, cost_model=PRICES).run([request(0.0, 6, 3), request(0.0, 3, 1)])


@pytest.fixture(scope="module")
def result():
    return run_two()


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_off_by_one_percent_at_most(seed):
    chance = random.Random(seed)
    values = [chance.lognormvariate(-3, 2) for _ in range(1000)]
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    values.sort()
    for percent in (1, 25, 50, 90, 99, 100):
        assert histogram.percentile(percent) == pytest.approx(values[percent * 10 - 1], rel=0.01)
    assert histogram.mean == pytest.approx(sum(values) / len(values))


def test_a_histogram_of_zeros_and_of_nothing():
    histogram = Histogram()
    assert math.isnan(histogram.mean)
    assert math.isnan(histogram.percentile(50))
    for value in (0.0, 0.0, 5.0):
        histogram.add(value)
    assert histogram.percentile(50) == 0.0
    assert histogram.percentile(100) == pytest.approx(5.0, rel=0.01)


def test_what_a_histogram_keeps_depends_on_the_range_and_not_on_the_number():
    histogram = Histogram()
    chance = random.Random(0)
    for _ in range(50_000):
        histogram.add(chance.uniform(0.001, 100.0))
    assert len(histogram._buckets) <= math.log(100 / 0.001) / math.log(1.02) + 2


def test_a_record_cannot_be_changed_and_is_compared_without_the_wall_clock(result):
    with pytest.raises(AttributeError):
        result.finished = 3
    again = run_two()
    assert again == result
    assert again.wall_seconds != result.wall_seconds


def test_a_record_as_a_dict_is_fit_for_json_and_has_the_rates(result):
    record = json.loads(json.dumps(result.as_dict()))
    assert record["finished"] == 2
    assert record["memory"]["used"] == result.memory.used
    assert record["hit_rate"] == 0.0
    assert record["steps_per_wall_second"] == pytest.approx(result.steps / result.wall_seconds)
    assert record["tokens_per_wall_second"] == pytest.approx(4 / result.wall_seconds)


def test_waste_is_all_that_is_neither_used_nor_free(result):
    assert result.memory.wasted == pytest.approx(1 - result.memory.used)
    assert result.pool.wasted == pytest.approx(1 - result.pool.used - result.pool.free)


def test_a_table_has_a_column_for_each_result_and_lines_of_one_length(result):
    lines = table({"first": result, "a longer name": result}).splitlines()
    assert lines[0].split() == ["first", "a", "longer", "name"]
    assert len({len(line) for line in lines}) == 1
    (row,) = [line for line in lines if line.startswith("requests finished")]
    assert row.split() == ["requests", "finished", "2", "2"]
    assert any(line.startswith("memory: used") and "%" in line for line in lines)


def test_a_table_of_nothing_is_refused():
    with pytest.raises(ValueError, match="0 results"):
        table({})


def test_a_missing_time_is_shown_as_nan():
    assert "nan" in table({"empty": make_simulator(8).run([])})
