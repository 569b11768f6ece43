"""`python -m refimpl generate` and `fetch-model`: their arguments, and what they print.

A single answer is printed as it grows. Several answers, or block tables in between, are printed in whole lines, each
with the letter of its sequence in front. Errors are one sentence on stderr; exit code 0 good, 2 could not run.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import TYPE_CHECKING

from refimpl.sequence import SamplingParams

if TYPE_CHECKING:
    from refimpl.serving.engine import Prompt
    from refimpl.serving.llm import LLM
    from refimpl.serving.outputs import RequestOutput

_LINE_WIDTH = 100  # characters of an answer before a line that carries a letter is broken


def add_generate_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `generate`, under vLLM's names where vLLM has them."""
    parser.add_argument("prompts", nargs="+", metavar="PROMPT", help="one or more, answered at once")
    parser.add_argument("--model", default="smollm2-135m", help="a name, a GGUF file, or a folder in the hub's format")
    parser.add_argument("--dtype", default="auto", help="auto (float32), float32, float16 or bfloat16")
    parser.add_argument("--block-size", type=int, default=16, help="tokens a block (default: 16)")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9, help="share of memory for the pool")
    parser.add_argument("--num-gpu-blocks-override", type=int, help="blocks of the pool, instead of what fits")
    parser.add_argument("--max-model-len", type=int, help="tokens a sequence, prompt and answer together")
    parser.add_argument("--max-num-seqs", type=int, default=256, help="sequences at once (default: 256)")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens an answer (default: 128)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest token (default: 0)")
    parser.add_argument("--top-p", type=float, default=1.0, help="sample from the likeliest tokens only")
    parser.add_argument("--seed", type=int, help="seed of the sampling")
    parser.add_argument("--ignore-eos", action="store_true", help="go on after the end-of-sequence token")
    parser.add_argument("--raw", action="store_true", help="take prompts as they are, without the chat template")
    parser.add_argument("--show-blocks", action="store_true", help="print each block table as it grows")


def run_generate(args: argparse.Namespace) -> int:
    """Answer the prompts. Returns the exit code."""
    try:
        return _generate(args)
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


def _generate(args: argparse.Namespace) -> int:
    from refimpl.serving.llm import LLM

    params = SamplingParams(
        temperature=args.temperature,
        top_p=args.top_p,
        max_tokens=args.max_tokens,
        ignore_eos=args.ignore_eos,
        seed=args.seed,
    )
    llm = LLM(
        args.model,
        dtype=args.dtype,
        block_size=args.block_size,
        gpu_memory_utilization=args.gpu_memory_utilization,
        num_gpu_blocks_override=args.num_gpu_blocks_override,
        max_model_len=args.max_model_len,
        max_num_seqs=args.max_num_seqs,
    )
    printers: dict[str, _AnswerPrinter] = {}
    for index, text in enumerate(args.prompts):
        label = _letters(index) if args.show_blocks or len(args.prompts) > 1 else None
        llm.llm_engine.add_request(str(index), _prompt(llm, text, args.raw), params)
        printers[str(index)] = _AnswerPrinter(label, args.show_blocks)
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


class _AnswerPrinter:
    """Prints one answer: as it grows without a label, else in lines of their own, with block tables where asked."""

    def __init__(self, label: str | None, show_blocks: bool) -> None:
        self._label = label
        self._show_blocks = show_blocks
        self._block_table: list[int] = []
        self._printed = 0  # characters of the answer that are on the screen

    def show(self, output: RequestOutput) -> None:
        """Print what is new in `output`."""
        (completion,) = output.outputs
        if output.error is not None:
            print(f"generate: {self._prefix()}{output.error}", file=sys.stderr)
            return
        if self._show_blocks and completion.block_table != self._block_table:
            self._block_table = completion.block_table
            print(f"{self._prefix()}blocks {self._block_table}", flush=True)
        new_text = completion.text[self._printed :]
        if self._label is None:
            print(new_text, end="\n" if output.finished else "", flush=True)
            self._printed = len(completion.text)
        else:
            self._print_lines(new_text, output.finished)

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
            print(f"{self._prefix()}{line}", flush=True)

    def _prefix(self) -> str:
        return "" if self._label is None else f"{self._label}: "


def _letters(index: int) -> str:
    """A, B, ... Z, AA, AB, ...

    >>> _letters(0), _letters(25), _letters(26)
    ('A', 'Z', 'AA')
    """
    head, last = divmod(index, 26)
    return (_letters(head - 1) if head else "") + chr(ord("A") + last)
