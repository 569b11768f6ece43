"""What `generate` and `fetch-model` print, and how they end."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refimpl import LLM, SamplingParams
from refimpl.serving import llm
from refimpl.serving.generate import add_generate_arguments, run_fetch_model, run_generate

SMALL = ["--model", "TINY", "--num-gpu-blocks-override", "64"]
FRANCE = "What is the capital of France, and why is it famous?"


def generate(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    add_generate_arguments(parser)
    return run_generate(parser.parse_args([str(argument) for argument in arguments]))


def test_the_real_model_answers(smollm2: LLM, monkeypatch, capsys):
    monkeypatch.setattr(llm, "LLM", lambda *args, **kwargs: smollm2)
    assert generate(FRANCE, "--max-tokens", "20") == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(
        "The capital of France is Paris. Paris is a city renowned for its historical landmarks"
    )
    assert printed.out.endswith("\n")
    assert printed.err == ""


def test_one_answer_is_printed_as_it_grows(tiny: LLM, tiny_folder, capsys, monkeypatch):
    pieces = []
    monkeypatch.setattr("builtins.print", lambda text, end="\n", flush=False: pieces.append((text, end, flush)))
    assert generate("two words", "--raw", "--model", tiny_folder, "--max-tokens", 30, "--max-model-len", 64) == 0
    (expected,) = tiny.generate("two words", SamplingParams(temperature=0, max_tokens=30))
    assert "".join(text for text, _, _ in pieces) == expected.outputs[0].text
    assert len(pieces) == len(expected.outputs[0].token_ids)
    assert [end for _, end, _ in pieces] == [""] * (len(pieces) - 1) + ["\n"]
    assert all(flush for _, _, flush in pieces)


def test_several_answers_keep_to_their_own_lines(tiny: LLM, tiny_folder, capsys):
    prompts = ["two words", "a page", "core"]
    options = ["--raw", "--model", tiny_folder, "--max-tokens", 60, "--num-gpu-blocks-override", 64]
    assert generate(*prompts, *options) == 0
    lines = capsys.readouterr().out.split("\n")
    params = SamplingParams(temperature=0, max_tokens=60)
    for letter, output in zip("ABC", tiny.generate(prompts, params), strict=True):
        own = [line.removeprefix(f"{letter}: ") for line in lines if line.startswith(f"{letter}: ")]
        assert "".join(own) == output.outputs[0].text.replace("\n", "")
    assert all(re.match("[ABC]: ", line) for line in lines[:-1])


def test_block_tables_are_printed_when_they_change(tiny_folder, capsys):
    options = ["--raw", "--model", tiny_folder, "--block-size", 4, "--num-gpu-blocks-override", 8, "--show-blocks"]
    assert generate("two words", *options, "--max-tokens", 12, "--ignore-eos") == 0
    tables = re.findall(r"^A: blocks \[(.*)\]$", capsys.readouterr().out, re.MULTILINE)
    numbers = [[int(number) for number in table.split(", ")] for table in tables]
    assert numbers[-1] == list(range(7, 7 - len(numbers[-1]), -1))
    assert numbers == [numbers[-1][:count] for count in range(len(numbers[0]), len(numbers[-1]) + 1)]
    assert len(numbers) >= 3


def lines_of(label: str, printed: str) -> list[str]:
    """What is printed behind a label."""
    return [line.removeprefix(f"{label}: ") for line in printed.split("\n") if line.startswith(f"{label}: ")]


def test_several_answers_to_a_prompt_are_numbered(tiny: LLM, tiny_folder, capsys):
    options = ["--raw", "--model", tiny_folder, "--num-gpu-blocks-override", 64, "--n", 2]
    sampling = ["--temperature", 1, "--top-p", 0.9, "--seed", 5, "--max-tokens", 30, "--stop", "e", "--stop", "zz"]
    assert generate("two words", "core", *options, *sampling) == 0
    printed = capsys.readouterr().out
    params = SamplingParams(n=2, temperature=1, top_p=0.9, seed=5, max_tokens=30, stop=["e", "zz"])
    for letter, output in zip("AB", tiny.generate(["two words", "core"], params), strict=True):
        for number, completion in enumerate(output.outputs, 1):
            lines = lines_of(f"{letter}.{number}", printed)
            assert "".join(lines) == completion.text.replace("\n", "")
            assert "e" not in completion.text
    assert set(re.findall(r"^([^:]*): ", printed, re.MULTILINE)) == {"A.1", "A.2", "B.1", "B.2"}


def test_the_best_answers_are_printed_when_they_are_known(tiny: LLM, tiny_folder, capsys):
    options = ["--raw", "--model", tiny_folder, "--num-gpu-blocks-override", 64, "--n", 2, "--best-of", 4]
    assert generate("two words", *options, "--temperature", 1, "--seed", 3, "--max-tokens", 12, "--ignore-eos") == 0
    printed = capsys.readouterr().out
    params = SamplingParams(n=2, best_of=4, seed=3, max_tokens=12, ignore_eos=True)
    (output,) = tiny.generate("two words", params)
    for number, completion in enumerate(output.outputs, 1):
        assert "".join(lines_of(f"A.{number}", printed)) == completion.text.replace("\n", "")


def test_block_tables_are_printed_when_a_copy_or_a_swap_changes_them(tiny_folder, capsys):
    """Two branches share their blocks until the first writes; then blocks move to the host, and elsewhere back."""
    options = ["--raw", "--model", tiny_folder, "--block-size", 4, "--num-gpu-blocks-override", 10, "--show-blocks"]
    options += ["--preemption-mode", "swap", "--swap-space", 0.001, "--n", 2, "--ignore-eos", "--max-tokens", 7]
    assert generate("two words", "a page of", "core", *options) == 0
    printed = capsys.readouterr().out
    tables = [
        [[int(number) for number in line[8:-1].split(", ")] for line in lines_of(label, printed) if "blocks [" in line]
        for label in ("A.1", "A.2", "C.1")
    ]
    assert tables[0][0] == tables[1][0]
    assert tables[0][-1] != tables[1][-1]
    assert any(after[0] != before[0] for before, after in zip(tables[2], tables[2][1:], strict=False))


def test_decisions_are_printed_between_labelled_lines(tiny_folder, capsys):
    options = ["--raw", "--model", tiny_folder, "--num-gpu-blocks-override", 8, "--log-decisions", "--max-tokens", 3]
    assert generate("two words", *options) == 0
    printed = capsys.readouterr().out
    assert re.search(r"^prefill +A +gpu free .* tokens$", printed, re.MULTILINE)
    assert lines_of("A", printed)


def test_a_cached_prefix_changes_no_answer(tiny_folder, capsys):
    options = ["--raw", "--model", tiny_folder, "--num-gpu-blocks-override", 64, "--block-size", 4, "--max-tokens", 9]
    printed = []
    for more in ([], ["--enable-prefix-caching", "--max-num-batched-tokens", 512]):
        assert generate("a page of words", "a page of core", *options, *more) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_an_answer_that_is_cut_short_is_printed_and_the_reason_on_stderr(tiny_folder, capsys):
    """No swap space, and each prompt asks for two answers, which only a swap could save."""
    options = ["--raw", "--model", tiny_folder, "--block-size", 4, "--num-gpu-blocks-override", 10, "--swap-space", 0]
    assert generate("two words", "a page of", "core", *options, "--n", 2, "--ignore-eos", "--max-tokens", 7) == 2
    printed = capsys.readouterr()
    assert re.search(
        r"^generate: [BC]: request [BC] had to make room, .*: raise swap_space$", printed.err, re.MULTILINE
    )
    assert lines_of("A.1", printed.out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hi", *SMALL, "--n", "3", "--best-of", "2"], "best_of is 2, it must be n (3) or more"),
        (["hi", *SMALL, "--n", "9", "--max-num-seqs", "8"], "asks for 9 sequences, max_num_seqs is 8"),
        (["hi", *SMALL, "--stop", ""], "stop is ('',), it must be one or several texts"),
        (["hi", *SMALL, "--swap-space", "-1"], "swap_space is -1.0 GiB, it must be 0 or more"),
        (["hi", *SMALL, "--max-num-batched-tokens", "9"], "max_num_batched_tokens is 9, it must be max_model_len"),
        (["hi", "--model", "nowhere"], "no model 'nowhere'"),
        (["hi", "--max-tokens", "0"], "max_tokens is 0"),
        (["hi", "--block-size", "0"], "block_size is 0"),
        (
            ["hi", "--raw", "--model", "TINY", "--num-gpu-blocks-override", "1", "--max-model-len", "17"],
            "max_model_len",
        ),
        (["hi " * 99, "--raw", "--model", "TINY", "--num-gpu-blocks-override", "1"], "the prompt has"),
        (["", "--raw", "--model", "TINY", "--num-gpu-blocks-override", "2"], "empty prompt"),
        (["hi", "--raw", "--model", "TINY", "--num-gpu-blocks-override", str(10**12)], "more than there is: lower"),
        (["hi", "--raw", "--model", "TINY", "--num-gpu-blocks-override", str(10**26)], "more than there is: lower"),
        (["hi", "--raw", *SMALL, "--seed", str(2**64)], f"seed is {2**64}, it must be between 0 and"),
        (["a\udcff", "--raw", *SMALL], r"character 1 of the text is '\udcff', no character of its own"),
        (["a\udcff", *SMALL], "no character of its own"),
        (["hi", "--raw", *SMALL, "--seed=-1"], "seed is -1, it must be between 0 and 18446744073709551615"),
    ],
)
def test_what_cannot_run_is_one_sentence_and_exit_code_2(tiny_folder, capsys, arguments, message):
    assert generate(*[tiny_folder if argument == "TINY" else argument for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("generate: ")
    assert message in error
    assert error.count("\n") == 1


def test_declaring_the_arguments_loads_no_torch():
    code = "import sys, refimpl.serving.generate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_package_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "refimpl.serving.llm", None)
    assert generate("hi") == 2
    assert "pip install refimpl[serving]" in capsys.readouterr().err


def test_without_the_model_the_sentence_names_file_place_and_command(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("REFIMPL_CACHE", str(tmp_path))
    assert generate(FRANCE) == 2
    error = capsys.readouterr().err
    for part in ("SmolLM2-135M-Instruct.Q4_1.gguf", str(tmp_path), "`python -m refimpl fetch-model`"):
        assert part in error


def start(arguments: list[str], stdout: int, stderr: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """`python -m refimpl`, in which Ctrl-C works even where the tests themselves run in the background of a shell."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from refimpl.cli import main; sys.exit(main())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=stdout, stderr=stderr, env=environment)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT that one process could send another")
def test_ctrl_c_ends_with_exit_code_130_and_without_a_word(tiny_folder):
    with start(
        ["generate", "two words", "--raw", "--model", str(tiny_folder), "--ignore-eos"], subprocess.PIPE
    ) as child:
        assert child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=300) == 130
        assert child.stderr.read().strip() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="on Windows a pipe without a reader is another error")
@pytest.mark.parametrize("command", ["generate", "checks", "simulate"])
def test_a_reader_that_has_gone_is_exit_code_141_and_no_word(tiny_folder, command):
    """As behind `| head`. The output of `checks` is short, and first written when the command has done its work."""
    arguments = {
        "generate": ["two words", "--raw", "--model", str(tiny_folder)],
        "checks": [],
        "simulate": ["--requests", "3", "--disable-tqdm"],
    }[command]
    reader, writer = os.pipe()
    os.close(reader)
    with start([command, *arguments], writer) as child:
        os.close(writer)
        assert child.wait(timeout=300) == 141
        assert child.stderr.read() == b""


@pytest.mark.skipif(sys.platform == "win32", reason="on Windows a pipe without a reader is another error")
def test_a_reader_of_both_streams_that_has_gone_is_exit_code_141():
    """As behind `2>&1 | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with start(["generate", "hi", "--model", "nowhere"], writer, writer) as child:
        os.close(writer)
        assert child.wait(timeout=300) == 141


def test_fetch_model_prints_the_path_or_a_sentence(monkeypatch, capsys):
    from refimpl.serving import fetch_model

    monkeypatch.setattr(fetch_model, "fetch_model", lambda: Path("there/model.gguf"))
    assert run_fetch_model(argparse.Namespace()) == 0
    assert capsys.readouterr().out == f"{Path('there/model.gguf')}\n"

    def fail() -> Path:
        raise ConnectionError("no way out")

    monkeypatch.setattr(fetch_model, "fetch_model", fail)
    assert run_fetch_model(argparse.Namespace()) == 2
    assert capsys.readouterr().err == "fetch-model: no way out\n"
