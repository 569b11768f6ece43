"""`python -m refimpl COMMAND`: every command, and nothing but the reading of its arguments.

The work lies in the modules that each command loads when it runs, so that `--help` needs no torch. Exit codes:
0 good, 1 found wrong, 2 could not run; 130 after Ctrl-C and 141 when nobody reads on, as a shell counts them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        try:
            args = _parser().parse_args(argv)
            code: int = args.run(args)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # ends the line that was cut off
        return 130
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):  # Python itself still writes at exit what they hold
            os.dup2(nowhere, stream.fileno())
        return 141
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m refimpl", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    doctor = commands.add_parser("doctor", help="what is broken or missing here, and the command that mends it")
    doctor.add_argument("--json", action="store_true", help="as JSON")
    doctor.set_defaults(run=_doctor)

    from refimpl.serving.generate import add_generate_arguments

    generate = commands.add_parser("generate", help="let a language model answer, its KV cache in our blocks")
    add_generate_arguments(generate)
    generate.set_defaults(run=_generate)

    from refimpl.simulate import add_simulate_arguments, run_simulate

    simulate = commands.add_parser("simulate", help="run traffic through our scheduler and blocks, without a model")
    add_simulate_arguments(simulate)
    simulate.set_defaults(run=run_simulate)

    fetch_model = commands.add_parser("fetch-model", help="download the model of the capstone, once (93 MB)")
    fetch_model.set_defaults(run=_fetch_model)

    checks = commands.add_parser("checks", help="list the exercise steps, or prove that their checks are right")
    checks.add_argument(
        "--proof",
        nargs="*",
        metavar="NN",
        help="in a checkout: answers pass, stubs earn nothing, mutants are named; for all chapters or these",
    )
    checks.add_argument("--json", action="store_true", help="as JSON")
    checks.set_defaults(run=_checks)

    check = commands.add_parser("check", help="run exercise notebooks from a clean kernel and say what is wrong")
    check.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    check.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS", help="for one cell (default: 60)")
    check.add_argument("--json", action="store_true", help="as JSON")
    check.set_defaults(run=_check)

    progress = commands.add_parser("progress", help="how far you have come, chapter by chapter, and what is next")
    progress.add_argument("folder", nargs="?", default=Path("my_work"), type=Path, help="default: my_work")
    progress.add_argument("--json", action="store_true", help="as JSON")
    progress.set_defaults(run=_progress)

    from refimpl import grade

    grade.add_arguments(commands.add_parser("grade", help="mark a class's submissions, for instructors"))

    bench = commands.add_parser("bench", help="measure what the package costs")
    what = bench.add_subparsers(title="what", required=True, metavar="WHAT")
    manager = what.add_parser("manager", help="the block manager's operations")
    _add_bench_manager_arguments(manager)
    attention = what.add_parser("attention", help="decode attention through block tables (needs torch)")
    _add_bench_attention_arguments(attention)
    engine = what.add_parser(
        "engine", help="a model served, with and without what memory management does (needs torch)"
    )
    _add_bench_engine_arguments(engine)
    gpu_check = what.add_parser("gpu-check", help="check and measure the Triton kernel on a GPU (needs torch)")
    _add_gpu_check_arguments(gpu_check)

    release = commands.add_parser("release", help="generate exercises/ from solutions/")
    release.add_argument("--check", action="store_true", help="change nothing; exit 1 where they differ")
    release.set_defaults(run=_release)

    execute = commands.add_parser("execute", help="run notebooks from a clean kernel and store their outputs")
    execute.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    execute.set_defaults(run=_execute)
    return parser


def _doctor(args: argparse.Namespace) -> int:
    from refimpl.doctor import run

    return run(args)


def _generate(args: argparse.Namespace) -> int:
    from refimpl.serving.generate import run_generate

    if args.my_work is None:
        return run_generate(args)
    from refimpl.parts import PartError, collect
    from refimpl.work import NoWork, notebooks

    try:
        notebooks(args.my_work)  # a folder that was named has to be there
        parts = collect(args.my_work, show=False)
        print(parts.table(), file=sys.stderr)
        return run_generate(args, parts)
    except NoWork as error:
        print(f"generate: {error}", file=sys.stderr)
        return 2
    except PartError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 1


def _fetch_model(args: argparse.Namespace) -> int:
    from refimpl.serving.generate import run_fetch_model

    return run_fetch_model(args)


def _checks(args: argparse.Namespace) -> int:
    if args.proof is not None:
        from refimpl.proof import main as proof

        return proof(args.proof, as_json=args.json)

    from refimpl.checks import steps

    try:
        known = steps().values()
    except ModuleNotFoundError as error:
        print(f"checks: {error}; `make lab` installs what the course needs", file=sys.stderr)
        return 2
    rows = [{"id": step.exercise_id, "points": step.points, "title": step.title} for step in known]
    if args.json:
        json.dump(rows, sys.stdout, indent=2)
        print()
        return 0
    for row in rows:
        print(f"{row['id']:<24} {row['points']:>4} points   {row['title']}")
    return 0


def _check(args: argparse.Namespace) -> int:
    from refimpl.check_notebook import main as check

    return check(args.notebooks, as_json=args.json, timeout=args.timeout)


def _progress(args: argparse.Namespace) -> int:
    from refimpl.progress import main as progress

    return progress(args.folder, as_json=args.json)


def _add_bench_manager_arguments(parser: argparse.ArgumentParser) -> None:
    from refimpl.bench import manager

    manager.add_arguments(parser)
    parser.set_defaults(run=manager.run)


def _add_bench_attention_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to measure (default: cpu)")
    parser.add_argument("--batch", type=int, default=32, help="sequences, on the CPU (default: 32)")
    contexts = [128, 512, 1024, 4096]
    parser.add_argument(
        "--contexts", type=int, nargs="+", default=contexts, metavar="TOKENS", help=f"on the CPU (default: {contexts})"
    )
    parser.add_argument("--rounds", type=int, default=15, help="of each measurement (default: 15)")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=_bench_attention)


def _add_bench_engine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2-135m", help="a name, a GGUF file, or a folder in the hub's format")
    parser.add_argument("--requests", type=int, default=16, help="at once (default: 16)")
    parser.add_argument("--max-tokens", type=int, default=32, help="tokens an answer (default: 32)")
    parser.add_argument("--rounds", type=int, default=3, help="of all rows (default: 3)")
    parser.add_argument("--json", action="store_true", help="as JSON, every round")
    parser.set_defaults(run=_bench_engine)


def _add_gpu_check_arguments(parser: argparse.ArgumentParser) -> None:
    out = Path("notebooks/gpu_runs")
    parser.add_argument("--out", type=Path, default=out, metavar="FOLDER", help=f"to write to (default: {out})")
    parser.add_argument("--rounds", type=int, default=15, help="of each measurement (default: 15)")
    parser.add_argument("--tune", action="store_true", help="measure other configurations of the kernel, too")
    parser.set_defaults(run=_gpu_check)


def _bench_attention(args: argparse.Namespace) -> int:
    try:
        from refimpl.bench import attention
    except ModuleNotFoundError as error:
        return _needs_torch("bench attention", error)
    return attention.run(args)


def _bench_engine(args: argparse.Namespace) -> int:
    try:
        from refimpl.bench import engine
    except ModuleNotFoundError as error:
        print(f"bench engine: {error}; it comes with `pip install refimpl[serving]`", file=sys.stderr)
        return 2
    return engine.run(args)


def _gpu_check(args: argparse.Namespace) -> int:
    try:
        from refimpl.bench import gpu_check
    except ModuleNotFoundError as error:
        return _needs_torch("gpu-check", error)
    return gpu_check.run(args)


def _needs_torch(command: str, error: ModuleNotFoundError) -> int:
    print(f"{command}: {error}; it comes with `pip install refimpl[device]`", file=sys.stderr)
    return 2


def _release(args: argparse.Namespace) -> int:
    from refimpl.release import main as release

    return release(check=args.check)


def _execute(args: argparse.Namespace) -> int:
    try:
        from refimpl.notebooks import execute
    except ModuleNotFoundError as error:
        print(f"execute: {error}; it comes with `pip install refimpl[lab]`", file=sys.stderr)
        return 2
    return execute(args.notebooks)
