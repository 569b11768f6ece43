"""The flags that `generate` and `simulate` share: their names, their defaults, and who takes them."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import fields

import pytest

from refimpl import LLM, CacheConfig, SchedulerConfig
from refimpl.engine_args import EngineArgs
from refimpl.serving.generate import add_generate_arguments


def parse(*arguments: str) -> EngineArgs:
    parser = argparse.ArgumentParser()
    EngineArgs.add_cli_args(parser)
    return EngineArgs.from_cli_args(parser.parse_args(arguments))


def test_without_flags_the_command_line_has_the_defaults_of_the_record():
    assert parse() == EngineArgs()


@pytest.mark.parametrize("defaults_of", [LLM, CacheConfig, SchedulerConfig])
def test_a_default_is_the_same_wherever_it_stands(defaults_of):
    there = inspect.signature(defaults_of).parameters
    shared = [field for field in fields(EngineArgs) if field.name in there and field.name != "max_model_len"]
    assert len(shared) >= 3
    assert {field.name: field.default for field in shared} == {
        field.name: there[field.name].default for field in shared
    }


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("block_size", 32),
        ("gpu_memory_utilization", 0.5),
        ("num_gpu_blocks_override", 7),
        ("swap_space", 1.5),
        ("preemption_mode", "swap"),
        ("max_model_len", 99),
        ("max_num_seqs", 3),
        ("max_num_batched_tokens", 4096),
    ],
)
def test_every_flag_sets_its_own_field(flag, value):
    expected = EngineArgs()
    setattr(expected, flag, value)
    assert parse(f"--{flag.replace('_', '-')}", str(value)) == expected


def test_prefix_caching_is_a_flag_without_a_value():
    assert parse("--enable-prefix-caching") == EngineArgs(enable_prefix_caching=True)


def test_generate_has_every_shared_flag():
    parser = argparse.ArgumentParser()
    add_generate_arguments(parser)
    assert EngineArgs.from_cli_args(parser.parse_args(["hi", "--swap-space", "2"])) == EngineArgs(swap_space=2)
