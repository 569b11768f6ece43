"""Prices: what a step is the sum of, and that the presets give back the figures that they stand for."""

import math
from dataclasses import replace

import pytest

from refimpl import CacheConfig, SchedulerConfig
from refimpl.simulation.cost_model import PRESETS, CostModel, num_attended_pairs
from refimpl.simulation.simulator import Simulator
from refimpl.simulation.workload import Lengths, poisson

MODEL = CostModel(1.0, 2.0, 4.0, 8.0, 16.0, kv_bytes_per_token=32, seconds_per_prefill_pair=64.0)


@pytest.mark.parametrize(
    ("held", "seconds"),
    [
        ({}, 1),
        ({"num_prefill_tokens": 3}, 1 + 6),
        ({"num_decode_tokens": 3}, 1 + 12),
        ({"num_context_tokens": 3}, 1 + 24),
        ({"num_swapped_bytes": 3}, 1 + 48),
        ({"num_prefill_pairs": 3}, 1 + 192),
        ({"num_prefill_tokens": 1, "num_swapped_bytes": 1}, 1 + 2 + 16),
    ],
)
def test_a_step_costs_the_sum_of_what_it_holds(held, seconds):
    assert MODEL.step_seconds(**held) == seconds


def test_attended_pairs_are_counted_token_by_token():
    for new, cached in [(1, 0), (1, 7), (5, 0), (5, 7)]:
        assert num_attended_pairs(new, cached) == sum(cached + i + 1 for i in range(new))


@pytest.mark.parametrize("name", ["seconds_per_step", "seconds_per_swapped_byte", "kv_bytes_per_token"])
@pytest.mark.parametrize("value", [-1, math.inf, math.nan])
def test_a_price_that_is_no_number_of_0_or_more_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        replace(MODEL, **{name: value})


def test_time_has_to_move_on():
    with pytest.raises(ValueError, match="time would stand still"):
        CostModel(0.0, 0.0, 1.0, 1.0, 1.0, kv_bytes_per_token=1)


@pytest.mark.parametrize(("batch", "measured"), [(1, 26.8), (8, 164.8), (32, 322.1), (64, 365.8)])
def test_the_cpu_preset_gives_back_the_measured_rows(batch, measured):
    simulator = Simulator(
        CacheConfig(num_gpu_blocks=64 * 9, num_cpu_blocks=0),
        SchedulerConfig(max_model_len=2048),
        PRESETS["cpu-smollm2-135m"],
    )
    result = simulator.run(poisson(batch, math.inf, prompt=Lengths(48), output=Lengths(64)))
    assert result.preemptions == 0
    assert result.tokens_per_second == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize(("prompt_len", "published"), [(1500, 0.185), (1020, 0.155)])
def test_the_preset_of_eight_a100_gives_back_splitwise_table_4(prompt_len, published):
    simulator = Simulator(
        CacheConfig(num_gpu_blocks=200, num_cpu_blocks=0),
        SchedulerConfig(max_model_len=4096),
        PRESETS["gpu-llama2-70b-8xa100"],
    )
    result = simulator.run(poisson(1, math.inf, prompt=Lengths(prompt_len), output=Lengths(129)))
    assert result.time_to_first_token_mean == pytest.approx(published, rel=0.12)
    assert result.time_per_output_token_mean == pytest.approx(0.040, rel=0.02)


def test_the_preset_of_one_a100_has_the_papers_bytes_a_token():
    model = PRESETS["gpu-opt-13b-a100"]
    assert model.kv_bytes_per_token == 800 * 1024
    assert 12 * 2**30 / model.kv_bytes_per_token == pytest.approx(15_700, rel=0.005)  # its slots, table 1
    assert model.seconds_per_step == pytest.approx(16.7e-3, rel=0.01)
