"""`python -m refimpl simulate`: traffic through the real scheduler and block manager, without a model.

The flags are those of `generate`, and others for what arrives and what a step costs; a sweep runs once for each value
of one flag. Every value is checked before the first run starts. Tables go to stdout, errors are one sentence on stderr.
Exit code 0 good, 2 could not run.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from refimpl.config import POLICIES, CacheConfig, SchedulerConfig
from refimpl.engine_args import EngineArgs
from refimpl.simulation import workload
from refimpl.simulation.cost_model import PRESETS, CostModel
from refimpl.simulation.results import SimulationResult, table
from refimpl.simulation.simulator import Simulator
from refimpl.simulation.traces import read_trace
from refimpl.simulation.workload import Lengths, WorkloadRequest

GIB = 1 << 30
MOST_BLOCKS = 10_000_000  # of a pool: a block is an object in this process's memory
DEFAULT_WORKLOAD = "sharegpt-like"


@dataclass(frozen=True, slots=True)
class Machine:
    """A model on a machine: its prices, and what sizes the pool.

    Args:
        cost_model: how long a step takes.
        memory_bytes, weight_bytes: of the GPUs in all, and what the model takes of them.
        max_model_len: tokens that the model is made for.
    """

    cost_model: CostModel
    memory_bytes: int
    weight_bytes: int
    max_model_len: int


MACHINES = {
    # On a CPU the weights are not of the share: as `generate` has it.
    "cpu-smollm2-135m": Machine(PRESETS["cpu-smollm2-135m"], GIB, 0, 8192),
    # 26 GB of weights: PagedAttention paper, table 1; its 12 GB for the cache are what 0.9 of 40 GiB leaves.
    "gpu-opt-13b-a100": Machine(PRESETS["gpu-opt-13b-a100"], 40 * GIB, 26 * 10**9, 2048),
    "gpu-llama2-70b-8xa100": Machine(PRESETS["gpu-llama2-70b-8xa100"], 8 * 80 * GIB, 2 * 70 * 10**9, 4096),
    "gpu-llama3-8b-8xa100": Machine(PRESETS["gpu-llama3-8b-8xa100"], 8 * 80 * GIB, 2 * 8 * 10**9, 131072),
}  # name on the command line -> what it stands for

WORKLOADS: dict[str, Callable[[argparse.Namespace], Iterable[WorkloadRequest]]] = {
    "sharegpt-like": lambda args: workload.sharegpt_like(args.requests, args.rate, seed=args.seed),
    "alpaca-like": lambda args: workload.alpaca_like(args.requests, args.rate, seed=args.seed),
    "poisson": lambda args: workload.poisson(
        args.requests,
        args.rate,
        prompt=Lengths(args.input_len, sigma=1.0),
        output=Lengths(args.output_len, sigma=1.0),
        seed=args.seed,
    ),
    "parallel-sampling": lambda args: workload.parallel_sampling(args.requests, args.rate, n=args.n, seed=args.seed),
    "shared-system-prompt": lambda args: workload.shared_system_prompt(
        args.requests, args.rate, system_tokens=args.system_tokens, seed=args.seed
    ),
    "chat": lambda args: workload.chat(
        args.requests, args.rate, turns=args.turns, think_time=args.think_time, seed=args.seed
    ),
}


def add_simulate_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `simulate`, under vLLM's names where vLLM has them."""
    _add_run_arguments(parser)
    output = parser.add_argument_group("output").add_argument
    output("--sweep", metavar="FLAG=A,B,C", help="run once for each value of a flag; on or off for one without a value")
    output("--figure", type=Path, metavar="PATH", help="a PNG file to draw the sweep to (needs matplotlib)")
    output("--json", action="store_true", help="as JSON")
    output("--disable-tqdm", action="store_true", help="no progress bar")


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What a run depends on, and so what can be swept over."""
    traffic = parser.add_argument_group("traffic")
    which = traffic.add_mutually_exclusive_group().add_argument
    which("--workload", choices=sorted(WORKLOADS), help=f"requests made by chance (default: {DEFAULT_WORKLOAD})")
    which("--trace", type=Path, metavar="FILE", help="recorded requests: an Azure CSV file or a Mooncake JSONL file")
    add = traffic.add_argument
    add("--limit", type=int, metavar="N", help="take the first requests of a trace only")
    add("--requests", type=int, default=1000, metavar="N", help="of a workload; conversations of chat (default: 1000)")
    add("--rate", type=float, default=1.0, help="requests a second on average, or inf (default: 1)")
    add("--seed", type=int, default=0, help="of a workload; equal seeds give equal requests (default: 0)")
    add("--input-len", type=float, default=161.31, metavar="TOKENS", help="mean, poisson (default: 161.31)")
    add("--output-len", type=float, default=337.99, metavar="TOKENS", help="mean, poisson (default: 337.99)")
    add("--n", type=int, default=4, help="answers to each prompt, parallel-sampling (default: 4)")
    add("--system-tokens", type=int, default=512, metavar="TOKENS", help="shared-system-prompt (default: 512)")
    add("--turns", type=int, default=4, help="of a conversation, chat (default: 4)")
    add("--think-time", type=float, default=10.0, metavar="SECONDS", help="before the next turn, chat (default: 10)")

    EngineArgs.add_cli_args(parser)

    add = parser.add_argument_group("machine").add_argument
    add("--cost-model", choices=sorted(MACHINES), default="gpu-opt-13b-a100", help="(default: gpu-opt-13b-a100)")
    add("--policy", choices=POLICIES, default="fcfs", help="who makes room first (default: fcfs, the latest arrival)")


def run_simulate(args: argparse.Namespace) -> int:
    """Run what the arguments say and print what came out. Returns the exit code."""
    try:
        return _simulate(args)
    except ModuleNotFoundError as error:
        print(f"simulate: {error}; it comes with `pip install refimpl[lab]`", file=sys.stderr)
    except BrokenPipeError:  # nobody reads on: no error of ours
        raise
    except (ValueError, OSError, NotImplementedError) as error:
        print(f"simulate: {error}", file=sys.stderr)
    return 2


def num_gpu_blocks(engine_args: EngineArgs, cost_model: str) -> int:
    """Blocks of the GPU pool: what the weights leave of the share `gpu_memory_utilization`, or the override.

    What a step takes besides is left out: nobody has measured it for a model that is not there.

    Raises:
        ValueError: when not a single block fits, or more than a simulation can hold.

    >>> num_gpu_blocks(EngineArgs(), "gpu-opt-13b-a100")  # 981 in the PagedAttention paper
    965

    Source: vLLM 0.5.4, `vllm/worker/worker.py`, `determine_num_available_blocks`.
    """
    override, share = engine_args.num_gpu_blocks_override, engine_args.gpu_memory_utilization
    if override is not None:
        if not 1 <= override <= MOST_BLOCKS:
            raise ValueError(f"num_gpu_blocks_override is {override}, it must be between 1 and {MOST_BLOCKS}")
        return override
    machine = MACHINES[cost_model]
    budget = int(share * machine.memory_bytes) - machine.weight_bytes
    block_bytes = engine_args.block_size * MACHINES[cost_model].cost_model.kv_bytes_per_token
    if budget < block_bytes:
        raise ValueError(
            f"a block of {engine_args.block_size} tokens takes {block_bytes} bytes, the cache has {max(budget, 0)}: "
            f"lower block_size, or raise gpu_memory_utilization ({share})"
        )
    return min(budget // block_bytes, MOST_BLOCKS)


def num_cpu_blocks(engine_args: EngineArgs, cost_model: str, num_gpu_blocks: int) -> int:
    """Blocks of the CPU pool: as many as `swap_space` holds; when it is None, twice those of the GPU pool.

    Raises:
        ValueError: for a swap_space with more blocks than a simulation can hold.
    """
    if engine_args.swap_space is None:
        return min(2 * num_gpu_blocks, MOST_BLOCKS)
    block_bytes = engine_args.block_size * MACHINES[cost_model].cost_model.kv_bytes_per_token
    if not engine_args.swap_space * GIB <= MOST_BLOCKS * block_bytes:
        most = math.floor(MOST_BLOCKS * block_bytes / GIB)
        raise ValueError(f"swap_space is {engine_args.swap_space} GiB, a simulation holds at most {most}: lower it")
    return int(engine_args.swap_space * GIB) // block_bytes


@dataclass(frozen=True, slots=True)
class _Setup:
    """One run, checked and not started."""

    args: argparse.Namespace
    cache_config: CacheConfig
    scheduler_config: SchedulerConfig
    cost_model: CostModel

    def run(self) -> SimulationResult:
        simulator = Simulator(self.cache_config, self.scheduler_config, self.cost_model)
        bar = not self.args.disable_tqdm
        return simulator.run(_requests(self.args), progress=bar and self.args.trace is None)

    def describe(self) -> str:
        cache, limits = self.cache_config, self.scheduler_config
        return (
            f"{cache.num_gpu_blocks:,} GPU and {cache.num_cpu_blocks:,} CPU blocks of {cache.block_size} tokens, "
            f"at most {limits.max_num_seqs:,} sequences of {limits.max_model_len:,} tokens, "
            f"{limits.max_num_batched_tokens:,} prompt tokens a step"
        )


def _simulate(args: argparse.Namespace) -> int:
    setups = {value: _setup(variant) for value, variant in _variants(args)}
    draw = _drawing(args)
    results = {value: setup.run() for value, setup in setups.items()}
    if args.json:
        _print_json(args, setups, results)
    else:
        _print_table(setups, results)
    if draw is not None:
        args.figure.write_bytes(draw(results))
    return 0


def _setup(args: argparse.Namespace) -> _Setup:
    """ValueError for a value that cannot work."""
    engine_args = EngineArgs.from_cli_args(args)
    cache_config = CacheConfig(
        engine_args.block_size,
        engine_args.gpu_memory_utilization,
        engine_args.swap_space,
        engine_args.enable_prefix_caching,
    )
    cache_config.num_gpu_blocks = num_gpu_blocks(engine_args, args.cost_model)
    cache_config.num_cpu_blocks = num_cpu_blocks(engine_args, args.cost_model, cache_config.num_gpu_blocks)
    max_model_len = engine_args.max_model_len
    if max_model_len is None:
        pool_tokens = cache_config.num_gpu_blocks * cache_config.block_size
        max_model_len = min(MACHINES[args.cost_model].max_model_len, pool_tokens)
    scheduler_config = SchedulerConfig(
        engine_args.max_num_batched_tokens,
        engine_args.max_num_seqs,
        max_model_len,
        engine_args.preemption_mode,
        args.policy,
    )
    _requests(args)
    return _Setup(args, cache_config, scheduler_config, MACHINES[args.cost_model].cost_model)


def _requests(args: argparse.Namespace) -> Iterable[WorkloadRequest]:
    if args.trace is None and args.limit is not None:
        raise ValueError(f"limit is {args.limit}, and there is no trace to take a part of: give --requests")
    if args.trace is None:
        return WORKLOADS[args.workload or DEFAULT_WORKLOAD](args)
    if args.workload is not None:
        raise ValueError(f"workload is {args.workload} and trace is {args.trace}: give one of the two")
    return read_trace(args.trace, limit=args.limit, progress=not args.disable_tqdm)


class _SweptParser(argparse.ArgumentParser):
    """Reads the values of a sweep; a bad one is an error like any other."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"--sweep: {message}")


def _variants(args: argparse.Namespace) -> Iterator[tuple[str, argparse.Namespace]]:
    """What to run under which name: the arguments as they are, or one variant for each value of the sweep."""
    if args.sweep is None:
        yield args.trace.name if args.trace else args.workload or DEFAULT_WORKLOAD, args
        return
    flag, values = _swept(args.sweep)
    parser = _SweptParser(prog="simulate", add_help=False, allow_abbrev=False)
    _add_run_arguments(parser)
    for value in values:
        variant = argparse.Namespace(**vars(args))
        if isinstance(vars(args).get(flag), bool) and value in ("on", "off"):
            setattr(variant, flag, value == "on")
        else:
            parser.parse_args([f"--{flag.replace('_', '-')}={value}"], variant)
        yield value, variant


def _swept(sweep: str) -> tuple[str, list[str]]:
    """The flag's name and its values.

    >>> _swept("block-size=8,16")
    ('block_size', ['8', '16'])
    """
    flag, equals, values = sweep.partition("=")
    if not equals:
        raise ValueError(f"sweep is {sweep!r}, it must be a flag and its values, such as block_size=8,16,32")
    return flag.strip().replace("-", "_"), [value.strip() for value in values.split(",")]


def _drawing(args: argparse.Namespace) -> Callable[[Mapping[str, SimulationResult]], bytes] | None:
    """Draws the results as PNG; None where nobody asked. What could stand in its way is found out before a run."""
    if args.figure is None:
        return None
    if args.sweep is None:
        raise ValueError(f"figure is {args.figure}, and there is nothing to draw without --sweep")
    if args.figure.suffix != ".png" or not args.figure.absolute().parent.is_dir():
        raise ValueError(f"figure is {args.figure}, it must be a .png file in a folder that exists")
    from refimpl.viz.sweep import sweep

    flag, _ = _swept(args.sweep)
    return lambda results: sweep(flag, {value: _quantities(result) for value, result in results.items()}).png()


def _quantities(result: SimulationResult) -> dict[str, float | None]:
    """What the figure of a sweep shows."""
    return {
        "throughput, output tokens/s": result.tokens_per_second,
        "time to first token, s, mean": _number(result.time_to_first_token_mean),
        "time per output token, ms, mean": _number(result.time_per_output_token_mean * 1000),
        "requests at once, peak": result.peak_concurrency,
        "preemptions, groups": result.preemptions,
        "hit rate, % of prompt tokens": 100 * result.hit_rate,
        "waste, % of memory handed out": 100 * result.memory.wasted,
    }


def _number(value: float) -> float | None:
    """None for a mean of nothing."""
    return None if math.isnan(value) else value


def _print_table(setups: Mapping[str, _Setup], results: Mapping[str, SimulationResult]) -> None:
    for value, setup in setups.items():
        print(f"{value}: {setup.describe()}")
    print(table(results))
    for value, result in results.items():
        print(f"{value}: simulated in {result.wall_seconds:,.1f} s, {result.steps_per_wall_second:,.0f} steps/s")


def _print_json(
    args: argparse.Namespace, setups: Mapping[str, _Setup], results: Mapping[str, SimulationResult]
) -> None:
    runs = [
        {
            "name": name,
            "arguments": {
                field: _plain(value) for field, value in vars(setups[name].args).items() if field in _fields()
            },
            "num_gpu_blocks": setups[name].cache_config.num_gpu_blocks,
            "num_cpu_blocks": setups[name].cache_config.num_cpu_blocks,
            "result": {field: _plain(value) for field, value in result.as_dict().items()},
        }
        for name, result in results.items()
    ]
    record: dict[str, Any] = {"sweep": args.sweep and _swept(args.sweep)[0], "runs": runs}
    json.dump(record, sys.stdout, indent=2, allow_nan=False)
    print()


def _fields() -> set[str]:
    """The names of what a run depends on."""
    parser = argparse.ArgumentParser(add_help=False)
    _add_run_arguments(parser)
    return set(vars(parser.parse_args([])))


def _plain(value: Any) -> Any:
    """A value as JSON has it: no time for a mean of nothing, and text for what JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return str(value) if isinstance(value, Path) else value
