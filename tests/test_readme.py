"""The documents: what they link is there, what they tell to type exists, and their figures are those of their sources.

The chapter table of README.md is held to the notebooks in `test_package.py`.
"""

import ast
import contextlib
import inspect
import io
import json
import re
import shlex
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import refimpl
from refimpl import proof
from refimpl.checks import steps
from refimpl.cli import _parser

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *ROOT.glob("notebooks/*/README.md")])
README, REFIMPL = ROOT / "README.md", ROOT / "refimpl/README.md"
ONE_SCREEN = 40  # lines
PICTURED = ROOT / "tests/mutants/03-free/freed-while-shared.py"

by_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def tokens(path):
    """Every Markdown token of the document, those inside a paragraph, too."""
    for token in MarkdownIt("commonmark").enable("table").parse(path.read_text()):
        yield token
        yield from token.children or ()


def anchors(path):
    """What GitHub calls the headings of the document."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(path, program):
    """The lines that the document tells to type and that begin with this program, as words."""
    for token in tokens(path):
        if token.type in ("fence", "code_inline"):
            for line in token.content.replace("\\\n", " ").splitlines():
                with contextlib.suppress(ValueError):  # no shell line: an apostrophe in a word
                    words = shlex.split(line.strip(), comments=True)
                    if words and words[: len(program)] == program:
                        yield words[len(program) :]


def table(path, heading):
    """The cells of the rows below this heading, without the head."""
    section = path.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


@by_document
def test_what_is_linked_is_there(path):
    for token in tokens(path):
        target = token.attrGet("href") or token.attrGet("src")
        if target and not re.match(r"\w+:", target):
            name, _, anchor = target.partition("#")
            file = path.parent / name if name else path
            assert file.exists(), f"{path.name} links {target}, and there is no such file"
            assert not anchor or anchor in anchors(file), f"{path.name} links {target}: no heading gives #{anchor}"


@by_document
def test_pictures_are_described(path):
    """V5."""
    for token in tokens(path):
        if token.type == "image":
            assert len(token.content) > 40, f"{token.attrGet('src')} is not described"


@by_document
def test_refimpl_takes_the_commands(path):
    """Their flags and values as well, where there are any."""
    refused = {}
    short = (words for words in commands(path, []) if words[0] in ("bench", "simulate"))
    for words in (*commands(path, ["python", "-m", "refimpl"]), *short):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            try:
                _parser().parse_args([*words, "--help"] if len(words) == 1 else words)
            except SystemExit as stop:
                refused.update({shlex.join(words): said.getvalue()} if stop.code else {})
    assert refused == {}


@by_document
def test_make_has_the_targets_that_are_named(path):
    targets = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for words in commands(path, ["make"]) for word in words if "=" not in word}
    assert named <= targets


@by_document
def test_what_python_and_pytest_are_given_is_there(path):
    given = [*commands(path, ["pytest"]), *commands(path, ["python", "-m", "pytest"]), *commands(path, ["python"])]
    files = {word for words in given for word in words if word.startswith("tests/")}
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


def test_one_screen_holds_the_picture_the_commands_and_the_head_of_the_chapters():
    screen = "\n".join(README.read_text().splitlines()[:ONE_SCREEN])
    places = [screen.find(text) for text in ("\n![", "\nmake lab", "\nmake test", "\n| chapter | lesson |")]
    assert -1 not in places
    assert places == sorted(places)


def test_the_hours_are_those_of_the_notebooks():
    """H4."""

    def hours(notebooks):
        found = [json.loads(path.read_text())["metadata"]["course"]["minutes"] for path in ROOT.glob(notebooks)]
        return round(sum(found) / 60)

    reading, building = hours("notebooks/[0-9]*.ipynb"), hours("exercises/[0-9]*/[0-9]*.ipynb")
    assert f"{reading} hours of reading and {building} of building" in README.read_text()


def test_the_picture_says_what_the_check_says_today():
    """`readme_picture.py` in the browser's tests takes it anew."""
    step = steps()["03-free"]
    said = proof.mutant_verdict(step, proof.Chapter(ROOT, "03"), PICTURED).said.splitlines()[0]
    (picture,) = [token.content for token in tokens(README) if token.type == "image"]
    assert said.partition(" — ")[2] in picture


def figures(cell):
    """The numbers of a cell, written as digits."""
    return re.findall(r"\d[\d,.]*(?<=\d)", cell)


@pytest.mark.parametrize("row", table(README, "What is measured"), ids=lambda row: row[0])
def test_figures_are_those_of_the_files_that_they_link(row):
    """A folder has as many files as the row says, in hundreds where it says more than; a file has the numbers in it."""
    _, said, source = row
    target = re.findall(r"\]\(([^)#]+)", source)[0]
    if (ROOT / target).is_dir():
        count = sum(1 for path in (ROOT / target).rglob("*.*") if path.suffix in (".py", ".jsonl"))
        count = len(proof.mutants(ROOT)) if target == "tests/mutants" else count
        assert figures(said)[0] == f"{count // 100 * 100 if 'more than' in said else count:,}"
    else:
        text = (ROOT / target).read_text()
        alone = {number: rf"(?<![\d.,]){re.escape(number)}(?!\d|[.,]\d)" for number in figures(said)}
        assert [number for number in alone if not re.search(alone[number], text)] == [], f"not in {target}"


def test_every_mended_fault_names_tests_that_are_there():
    """A test's name stands there as words, linked to its file."""
    rows = table(REFIMPL, "Faults of vLLM 0.5.4 that are mended here")
    assert len(rows) >= 20
    for fault, _, tests in rows:
        named = re.findall(r"\[([\w ]+)\]\(([^)]+)\)", tests)
        assert named, fault
        for words, file in named:
            tree = ast.walk(ast.parse((REFIMPL.parent / file).read_text()))
            names = {node.name for node in tree if isinstance(node, ast.FunctionDef)}
            assert f"test_{words.replace(' ', '_')}" in names, fault


def test_the_files_that_prove_things_are_there():
    """Paths in `tests/README.md` begin in its own folder."""
    paths = [token.content for token in tokens(ROOT / "tests/README.md") if token.type == "code_inline"]
    paths = [path.split()[0] for path in paths if re.match(r"[\w/]+\.(py|md)( |$)", path)]
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / "tests" / path).exists() and not (ROOT / path).exists()] == []


def test_the_list_of_modules_is_whole():
    listed = REFIMPL.read_text().partition("```\n")[2].partition("```")[0]
    names = {word.strip("/") for line in listed.splitlines() for word in re.split(r" {4,}", line)[0].split()}
    modules = {
        path.stem for path in (ROOT / "refimpl").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert names == modules - {"__init__", "__main__"}


def test_every_class_is_told_its_name_in_later_vllm():
    """D7: by the table of chapter 13, or by the one beside it."""
    cells = json.loads((ROOT / "notebooks/13_after_v0.ipynb").read_text())["cells"]
    (course_map,) = ["".join(cell["source"]) for cell in cells if cell["id"] == "map"]
    rows = [line.split("|")[1] for line in course_map.splitlines() if line.startswith("| `")]
    beside = REFIMPL.read_text().partition("\n## Names, then and now\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"\w+", " ".join([*rows, *re.findall(r"`[^`]+`", beside)])))
    assert {name for name in refimpl.__all__ if inspect.isclass(getattr(refimpl, name))} <= told
