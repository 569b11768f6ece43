"""`python -m refimpl generate` and `fetch-model`: their arguments, and what they print.

A single answer is printed as it grows. Several answers, or block tables and decisions in between, are printed in whole
lines, each with a letter for its prompt in front, and a number where a prompt has several answers: A.1, A.2. Errors are
one sentence on stderr; exit code 0 good, 2 could not run.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

from refimpl.engine_args import EngineArgs
from refimpl.sequence import SamplingParams

if TYPE_CHECKING:
    from refimpl.serving.engine import Prompt
    from refimpl.serving.llm import LLM
    from refimpl.serving.outputs import CompletionOutput, RequestOutput
    from refimpl.serving.seam import EngineParts

_LINE_WIDTH = 100  # characters of an answer before a line that carries a letter is broken


def add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `generate`, under vLLM's names where vLLM has them."""
    add = parser.add_argument
    add("prompts", nargs="+", metavar="PROMPT", help="one or more, answered at once")
    add(
        "--model",
        default="smollm2-135m",
        help="smollm2-135m, random-tiny, a GGUF file, or a folder in the hub's format",
    )
    add("--dtype", default="auto", help="auto (float32), float32, float16 or bfloat16")
    add("--device", default="cpu", help="where the model runs: cpu or cuda (default: cpu)")
    add("--raw", action="store_true", help="take prompts as they are, without the chat template")

    EngineArgs.add_cli_args(parser)

    answers = parser.add_argument_group("answers").add_argument
    answers("--n", type=int, default=1, help="answers to each prompt; they differ where the temperature is above 0")
    answers("--best-of", type=int, metavar="N", help="generate so many and print the likeliest --n of them")
    answers("--max-tokens", type=int, default=128, metavar="TOKENS", help="of an answer (default: 128)")
    answers("--temperature", type=float, default=0.0, help="0 takes the likeliest token (default: 0)")
    answers("--top-p", type=float, default=1.0, help="sample from the likeliest tokens only")
    answers("--seed", type=int, help="seed of the sampling; answer i of several draws with seed + i")
    answers("--stop", action="append", default=[], metavar="TEXT", help="end an answer before this; may be repeated")
    answers("--ignore-eos", action="store_true", help="go on after the end-of-sequence token")

    insight = parser.add_argument_group("insight").add_argument
    insight("--show-blocks", action="store_true", help="print each block table when it changes")
    insight("--log-decisions", action="store_true", help="print what the scheduler decides, and why")
    insight("--my-work", metavar="FOLDER", help="serve with your own parts: those in these notebooks that pass")


def run_generate(args: argparse.Namespace, parts: EngineParts | None = None) -> int:
    """Answer the prompts of the command line's `args`, with these parts. Returns the exit code."""
    try:
        return _generate(args, parts)
    except ModuleNotFoundError as error:
        print(f"generate: {error}; it comes with `pip install refimpl[serving]`", file=sys.stderr)
    except BrokenPipeError:  # nobody reads on: no error of ours
        raise
    except (ValueError, OSError, NotImplementedError) as error:
        print(f"generate: {error}", file=sys.stderr)
    return 2


def run_fetch_model(args: argparse.Namespace) -> int:
    """Put the model into the cache and say where it is. Returns the exit code."""
    from refimpl.serving.fetch_model import fetch_model

    try:
        print(fetch_model())
    except (ValueError, OSError) as error:
        print(f"fetch-model: {error}", file=sys.stderr)
        return 2
    return 0


def _generate(args: argparse.Namespace, parts: EngineParts | None) -> int:
    from refimpl.serving.llm import LLM

    params = SamplingParams(
        n=args.n,
        best_of=args.best_of,
        temperature=args.temperature,
        top_p=args.top_p,
        max_tokens=args.max_tokens,
        ignore_eos=args.ignore_eos,
        seed=args.seed,
        stop=args.stop,
    )
    llm = LLM(
        args.model,
        dtype=args.dtype,
        device=args.device,
        **asdict(EngineArgs.from_cli_args(args)),
        log_decisions=args.log_decisions,
        parts=parts,
    )
    single = len(args.prompts) == params.num_candidates == 1 and not (args.show_blocks or args.log_decisions)
    printers: dict[str, _RequestPrinter] = {}
    for index, text in enumerate(args.prompts):
        name = _letters(index)
        llm.llm_engine.add_request(name, _prompt(llm, text, args.raw), params)
        printers[name] = _RequestPrinter(None if single else name, params, args.show_blocks)
    errors = 0
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            printers[output.request_id].show(output)
            errors += output.error is not None
    return 2 if errors else 0


def _prompt(llm: LLM, text: str, raw: bool) -> Prompt:
    """The prompt as the engine takes it: as it is, or as a conversation of one user turn and nothing else."""
    if raw:
        return text
    messages = [{"role": "user", "content": text}]
    return {"prompt_token_ids": llm.get_tokenizer().apply_chat_template(messages, default_system_prompt=False)}


class _RequestPrinter:
    """Prints the answers to one prompt, and on stderr why there are none, or no more.

    Which answers are the best is known when all have ended, and so they are printed then.
    """

    def __init__(self, label: str | None, params: SamplingParams, show_blocks: bool) -> None:
        self._label = label
        self._wait = params.num_candidates > params.n
        labels = [label] if params.n == 1 else [f"{label}.{number}" for number in range(1, params.n + 1)]
        self._printers = [_AnswerPrinter(own, show_blocks) for own in labels]

    def show(self, output: RequestOutput) -> None:
        """Print what is new in `output`."""
        if output.finished or not self._wait:
            for printer, completion in zip(self._printers, output.outputs, strict=False):  # fewer before they fork
                printer.show(completion, finished=output.finished or completion.finish_reason is not None)
        if output.error is not None:
            print(f"generate: {_prefix(self._label)}{output.error}", file=sys.stderr)


class _AnswerPrinter:
    """Prints one answer: as it grows without a label, else in lines of their own, with block tables where asked."""

    def __init__(self, label: str | None, show_blocks: bool) -> None:
        self._label = label
        self._show_blocks = show_blocks
        self._block_table: list[int] = []
        self._printed = 0  # characters of the answer that are on the screen
        self._finished = False

    def show(self, completion: CompletionOutput, finished: bool) -> None:
        """Print what is new in `completion`."""
        if self._finished:
            return
        self._finished = finished
        if self._show_blocks and completion.block_table != self._block_table:
            self._block_table = completion.block_table
            print(f"{_prefix(self._label)}blocks {self._block_table}", flush=True)
        new_text = completion.text[self._printed :]
        if self._label is not None:
            self._print_lines(new_text, finished)
        elif completion.token_ids:
            print(new_text, end="\n" if finished else "", flush=True)
            self._printed = len(completion.text)

    def _print_lines(self, new_text: str, finished: bool) -> None:
        """Print the lines that are complete, and the rest when the answer is."""
        *complete, rest = new_text.split("\n")
        if len(rest) > _LINE_WIDTH:
            broken = textwrap.wrap(
                rest, _LINE_WIDTH, drop_whitespace=False, replace_whitespace=False, expand_tabs=False
            )
            complete, rest = complete + broken[:-1], broken[-1]
        self._printed += len(new_text) - len(rest)
        if finished and rest:
            complete.append(rest)
        for line in complete:
            print(f"{_prefix(self._label)}{line}", flush=True)


def _prefix(label: str | None) -> str:
    return "" if label is None else f"{label}: "


def _letters(index: int) -> str:
    """A, B, ... Z, AA, AB, ...

    >>> _letters(0), _letters(25), _letters(26)
    ('A', 'Z', 'AA')
    """
    head, last = divmod(index, 26)
    return (_letters(head - 1) if head else "") + chr(ord("A") + last)
