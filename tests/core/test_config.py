"""Flags refuse impossible values."""

import pytest

from refimpl import CacheConfig, SchedulerConfig


def test_defaults_are_vllms():
    cache, scheduler = CacheConfig(), SchedulerConfig(max_model_len=4096)
    assert (cache.block_size, cache.gpu_memory_utilization, cache.enable_prefix_caching) == (16, 0.9, False)
    assert (scheduler.max_num_seqs, scheduler.max_num_batched_tokens, scheduler.policy) == (256, 4096, "fcfs")
    assert SchedulerConfig(max_model_len=10).max_num_batched_tokens == 2048


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("block_size", 0),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.1),
        ("swap_space", -1),
        ("num_gpu_blocks", -1),
        ("num_cpu_blocks", -2),
    ],
)
def test_impossible_caches_are_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        CacheConfig(**{field: value})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "max_model_len is 0, it must be 1 or more"),
        ({"max_model_len": 8, "max_num_seqs": 0}, "max_num_seqs is 0"),
        (
            {"max_model_len": 64, "max_num_batched_tokens": 63},
            r"max_num_batched_tokens is 63.*max_model_len \(64\)",
        ),
        ({"max_model_len": 8, "max_num_batched_tokens": 8, "max_num_seqs": 9}, r"max_num_seqs \(9\)"),
        ({"max_model_len": 8, "preemption_mode": "sawp"}, "'sawp'"),
        ({"max_model_len": 8, "policy": "lifo"}, "'lifo'"),
    ],
)
def test_impossible_schedulers_are_refused(flags, said):
    with pytest.raises(ValueError, match=said):
        SchedulerConfig(**flags)


def test_edges_are_allowed():
    CacheConfig(block_size=1, gpu_memory_utilization=1, swap_space=0)
    SchedulerConfig(max_model_len=64, max_num_batched_tokens=64, max_num_seqs=64, preemption_mode="swap")


def test_limits_may_be_given_by_position():
    config = SchedulerConfig(2048, 256, 1024)
    assert (config.max_num_batched_tokens, config.max_num_seqs, config.max_model_len) == (2048, 256, 1024)
