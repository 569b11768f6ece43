"""The planted cases: submissions that a grader must survive and judge right, each with its marks and what must be said.

Every step is marked as if the others were harmless: a loop, a crash or a trick in one answer costs that step, and those
that build on it. What is dangerous to a machine without limits stops by itself, and then answers right: where nothing
else stopped it, its marks are too high.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from handed_in import HandedIn, chapters

from refimpl.checks.catalogue import chapter_steps

EATEN = 8  # GiB, after which the memory eater has met no limit
FORKED = 1000  # children, after which the fork bomb has met no limit; each ends by itself
CHILDREN_LIVE = 20  # seconds
PRINTED = 200_000  # lines
LARGE = 50_000_000  # bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Surroundings:
    """What a learner who means harm knows of the machine.

    Args:
        class_folder: where all submissions lie.
        port: of the loopback address, where somebody listens (see `listening`).
    """

    class_folder: Path
    port: int


@dataclasses.dataclass(frozen=True, slots=True)
class Planted:
    """One case.

    Args:
        name: of the case.
        content: makes the file.
        marks: step -> points; empty for a file that is no notebook, which has no steps.
        says: step, or "" for the notebook as a whole -> a regular expression for what must stand in what is said of it.
        chapter: number of the chapter.
        student: whose folder it lies in, where that is the case.
        needs_bubblewrap: only a room without network and without the other submissions keeps its marks down.
        needs_limits: it is not to be run where neither memory nor processes are limited.
    """

    name: str
    content: Callable[[Surroundings], bytes]
    marks: Mapping[str, float]
    says: Mapping[str, str] = dataclasses.field(default_factory=dict)
    chapter: str = "03"
    student: str = ""
    needs_bubblewrap: bool = False
    needs_limits: bool = False

    @property
    def file_name(self) -> str:
        """Of the notebook, which lies in a folder of the same name."""
        return f"{chapters()[self.chapter]}.ipynb"


def full(number: str, **earned: float) -> dict[str, float]:
    """All points for every step of a chapter, but for those that are named: `free` is 03-free.

    >>> full("03", free=0)
    {'03-allocate': 3.0, '03-free': 0.0, '03-share': 3.0}
    """
    points = {step.exercise_id: float(step.points) for step in chapter_steps(number).values()}
    changed = {f"{number}-{name.replace('_', '-')}": float(mark) for name, mark in earned.items()}
    assert changed.keys() <= points.keys(), changed
    return points | changed


def nothing(number: str) -> dict[str, float]:
    """No points for any step."""
    return dict.fromkeys(full(number), 0.0)


# Answers to 03-free and 03-allocate that are right, but for what they do first.

FREE = """
@add_to_class(UncachedBlockAllocator)
def free(self, block):
    if block.ref_count == 0:
        raise ValueError(f"Double free: block {block.block_number} has no owner")
    block.ref_count -= 1
    if block.ref_count == 0:
        self.free_blocks.append(block)
"""
ALLOCATE = """
@add_to_class(UncachedBlockAllocator)
def allocate(self, block_hash=None, num_hashed_tokens=0):
    if not self.free_blocks:
        raise ValueError("Out of memory: no block is free")
    block = self.free_blocks.pop()
    block.ref_count = 1
    return block
"""


def first(does: str, answer: str = FREE) -> str:
    """The answer that does this whenever it is called."""
    head, colon, body = answer.partition("):\n")
    return head + colon + textwrap.indent(text(does), "    ") + "\n" + body


def above(does: str, answer: str = FREE) -> str:
    """The answer's cell, which does this when it is run, before it defines anything."""
    return f"{text(does)}\n\n{answer}"


def text(source: str) -> str:
    """Without the indentation that the layout of this file gave it."""
    return textwrap.dedent(source).strip()


def answered(**sources: str) -> Callable[[Surroundings], bytes]:
    """Chapter 3, solved, with these sources in the answer cells of `allocate`, `free` and `share`."""

    def content(_: Surroundings) -> bytes:
        notebook = HandedIn("03")
        for name, source in sources.items():
            notebook.write(f"03-{name}-answer", text(source))
        return notebook.as_bytes()

    return content


def changed(change: Callable[[HandedIn], object], number: str = "03", is_solved: bool = True) -> Callable[..., bytes]:
    """A chapter's notebook after a change."""

    def content(_: Surroundings) -> bytes:
        notebook = HandedIn(number, is_solved)
        change(notebook)
        return notebook.as_bytes()

    return content


def begins(source: str, is_solved: bool = False, **answers: str) -> Callable[..., bytes]:
    """Chapter 3, by default as released, with a cell of the learner's own in front of the first task."""

    def change(notebook: HandedIn) -> None:
        notebook.put(text(source), before="03-allocate-task")
        for name, answer in answers.items():
            notebook.write(f"03-{name}-answer", text(answer))

    return changed(change, is_solved=is_solved)


def constant(content: bytes) -> Callable[..., bytes]:
    """A file that is what it is."""
    return lambda _: content


# The cases, a function for each kind.

ACCENTS = "Zoë Ångström-d'Arc (groupe 2)"


def plain() -> Iterator[Planted]:
    """What most learners hand in, and names that files may have."""
    for number in ("01", "02", "03"):
        yield Planted(f"all-right-{number}", changed(lambda _: None, number), full(number), chapter=number)
    wrong = "def {}(self, *args):\n    return None"
    yield Planted(
        "all-wrong",
        answered(
            allocate=f"@add_to_class(UncachedBlockAllocator)\n{wrong.format('allocate')}",
            free=f"@add_to_class(UncachedBlockAllocator)\n{wrong.format('free')}",
            share=wrong.format("share_block_table"),
        ),
        nothing("03"),
        {"03-allocate": "yours returned None", "03-free": "builds on 03-allocate", "03-share": "returned None"},
    )
    for number in ("01", "03"):
        yield Planted(
            f"untouched-{number}",
            changed(lambda _: None, number, is_solved=False),
            nothing(number),
            dict.fromkeys(nothing(number), "NotImplementedError|not attempted|has no method"),
            chapter=number,
        )
    yield Planted("spaces-and-accents", changed(lambda _: None), full("03"), student=ACCENTS)

    def rename(notebook: HandedIn) -> None:
        notebook.content["metadata"]["kernelspec"] = {
            "display_name": "My vLLM",
            "language": "python",
            "name": "my-vllm",
        }

    yield Planted("kernel-renamed", changed(rename), full("03"))


FOR_EVER = "while True:\n    pass"
CATCHES_ALL = """
def for_ever():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass

for_ever()
"""


def loops() -> Iterator[Planted]:
    """Answers that never end: in the call that the check makes, and in the cell."""
    in_check = {"03-free": "had not returned.* look for a loop"}
    in_cell = {"03-free": "your answer.* had not ended after"}
    yield Planted("endless-loop", answered(free=first(FOR_EVER)), full("03", free=0), in_check)
    yield Planted(
        "endless-loop-below-others",
        answered(allocate=first(FOR_EVER, ALLOCATE)),
        full("03", allocate=0, free=0),
        {"03-allocate": "had not returned.* look for a loop", "03-free": "builds on 03-allocate"},
    )
    yield Planted("endless-loop-in-the-cell", answered(free=above(FOR_EVER)), full("03", free=0), in_cell)
    yield Planted("endless-loop-that-catches", answered(free=first(CATCHES_ALL)), full("03", free=0), in_check)
    yield Planted(
        "endless-loop-that-catches-in-the-cell", answered(free=above(CATCHES_ALL)), full("03", free=0), in_cell
    )


EATS = f"""
hoard = []
while len(hoard) < {EATEN * 16} and "is_full" not in globals():
    hoard.append(b"x" * 2**26)
is_full = globals().setdefault("is_full", True)
"""
FORKS = f"""
import os, signal, time
children = globals().setdefault("children", [])
while len(children) < {FORKED}:
    child = os.fork()
    if child == 0:
        signal.alarm({CHILDREN_LIVE})
        time.sleep({CHILDREN_LIVE})
        os._exit(0)
    children.append(child)
"""
PRINTS = f"""
if "has_told" not in globals():
    has_told = globals().setdefault("has_told", True)
    for number in range({PRINTED}):
        print("line", number)
"""


def greedy() -> Iterator[Planted]:
    """Answers that take what a machine has: memory, processes, the disk of whoever keeps their output."""
    yield Planted(
        "memory-eater",
        answered(free=first(EATS)),
        full("03", free=0),
        {"03-free": "MemoryError|took more memory"},
        needs_limits=True,
    )
    yield Planted(
        "fork-bomb",
        answered(free=first(FORKS)),
        full("03", free=0),
        {"03-free": r"more than \d+ processes|BlockingIOError|Resource temporarily unavailable"},
        needs_limits=True,
    )
    yield Planted("many-lines", answered(free=first(PRINTS)), full("03"))
    yield Planted("many-lines-in-the-cell", answered(free=above(PRINTS)), full("03"))


def ends() -> Iterator[Planted]:
    """Answers that leave Python."""
    killed = {"03-free": "ended the kernel"}
    yield Planted("os-exit", answered(free=first("import os\nos._exit(0)")), full("03", free=0), killed)
    yield Planted("os-exit-in-the-cell", answered(free=above("import os\nos._exit(0)")), full("03", free=0), killed)
    for place, source in (("", first("import sys\nsys.exit()")), ("-in-the-cell", above("import sys\nsys.exit(0)"))):
        yield Planted(f"sys-exit{place}", answered(free=source), full("03", free=0), {"03-free": "SystemExit"})
    yield Planted("exit-in-the-cell", answered(free=above("exit()")), full("03", free=0), killed)


def loud() -> Iterator[Planted]:
    """Right answers that write where a grader looks for errors, and one that asks."""
    descriptor = "import os\nos.write(2, b'a library says something\\n')"
    warning = "import warnings\nwarnings.warn('a warning')"
    yield Planted("descriptor-2", answered(free=first(descriptor)), full("03"))
    yield Planted("descriptor-2-in-the-cell", answered(free=above(descriptor)), full("03"))
    yield Planted("warning", answered(free=first(warning)), full("03"))
    yield Planted("warning-in-the-cell", answered(free=above(warning)), full("03"))
    asks = "how_many = input('how many blocks? ')"
    yield Planted("input", answered(free=first(asks)), full("03", free=0), {"03-free": r"input\(\)"})
    yield Planted("input-in-the-cell", begins(asks, is_solved=True), full("03"), {"": r"Nobody answers `input\(\)`"})


def check_cells() -> Iterator[Planted]:
    """Right answers whose check cells, or whose cells, are not as released."""

    def says(name: str, change: Callable[[HandedIn], object], said: str, place: str = "03-free") -> Planted:
        return Planted(name, changed(change), full("03"), {place: said} if said else {})

    def to_markdown(notebook: HandedIn) -> None:
        cell = notebook.cell("03-free")
        cell["cell_type"] = "markdown"
        del cell["outputs"], cell["execution_count"]

    def split(name: str, upper: str, lower: str, before: str) -> Callable[[HandedIn], None]:
        def change(notebook: HandedIn) -> None:
            notebook.copy(name, before=before, source=lower)
            notebook.write(name, upper)

        return change

    def move(before: str) -> Callable[[HandedIn], None]:
        def change(notebook: HandedIn) -> None:
            cell = notebook.cells.pop(notebook.at("03-free"))
            notebook.cells.insert(notebook.at(before), cell)

        return change

    twice = "check cell is there 2 times"
    halves = split("03-free", 'check("03-free",', "      UncachedBlockAllocator)", "03-share-task")
    helper = "def has_owner(block):\n    return block.ref_count > 0\n"
    asks = FREE.replace("if block.ref_count == 0:\n        raise", "if not has_owner(block):\n        raise")
    parts = split("03-free-answer", helper, asks, "03-free")
    yield says("check-deleted", lambda nb: nb.cells.pop(nb.at("03-free")), "check cell is missing")
    yield says("check-edited", lambda nb: nb.write("03-free", "assert True"), "check cell was changed")
    yield says("check-duplicated", lambda nb: nb.copy("03-free", before="03-share-task"), twice)
    yield says("check-split", halves, twice)
    yield says("check-moved-up", move("given-text"), "stands above the answer")
    yield says("check-moved-down", move("done"), "")
    yield says("check-turned-into-markdown", to_markdown, "is a Markdown cell")
    yield says("answer-copied", lambda nb: nb.copy("03-free-answer", before="done"), "is there 2 times", "")
    yield says("answer-split", parts, "is there 2 times", "")


def order() -> Iterator[Planted]:
    """Helpers that only a later cell defines: that works when cells are run out of order."""
    helper = "def has_owner(block):\n    return block.ref_count > 0"
    for name, source in {
        "helper-below": first("has_owner(block)"),
        "helper-below-the-cell": above("has_owner(None)"),
    }.items():

        def change(notebook: HandedIn, source: str = source) -> None:
            notebook.write("03-free-answer", source)
            notebook.put(helper, before="done")

        said = {"03-free": "needs `has_owner`, which is only defined below|NameError: name 'has_owner'"}
        yield Planted(name, changed(change), full("03", free=0), said)


FORGED_RESULT = """
from refimpl.checks import CheckResult

def forged(step, subject, time_limit=10.0):
    return CheckResult(step.exercise_id, step.title, "passed", float(step.points), step.points, "7 properties held.")
"""
EXCHANGED = {  # case -> what is run, a regular expression for what must be named
    "examine-exchanged": (
        f"import refimpl.checks.engine\n{FORGED_RESULT}\nrefimpl.checks.engine.examine = forged",
        r"refimpl\.checks\.engine\.examine\b.* put back",
    ),
    "examine-exchanged-everywhere": (
        f"import sys\n{FORGED_RESULT}\nfor module in list(sys.modules.values()):\n"
        "    if hasattr(module, 'examine'):\n        module.examine = forged",
        r"\.examine\b.* put back",
    ),
    "code-of-examine-exchanged": (
        f"from refimpl.checks.engine import examine\n{FORGED_RESULT}\n"
        "forged.__globals__['CheckResult'] = CheckResult\nexamine.__code__ = forged.__code__",
        r"refimpl\.checks\.engine\.examine\b.* put back",
    ),
    "check-exchanged": (
        f"import refimpl.checks\nfrom refimpl.checks.catalogue import find\n{FORGED_RESULT}\n"
        "refimpl.checks.check = refimpl.checks.engine.check = lambda name, subject: forged(find(name), subject)",
        r"refimpl\.checks(\.engine)?\.check\b.* put back",
    ),
    "result-exchanged": (
        """
        from refimpl.checks import CheckResult

        init = CheckResult.__init__

        def best(self, exercise_id, title, outcome, points, max_points, *rest, **more):
            init(self, exercise_id, title, "passed", float(max_points), max_points, *rest, **more)

        CheckResult.__init__ = best
        """,
        r"CheckResult\b.* put back",
    ),
    "comparison-exchanged": (
        """
        from refimpl.checks.step import Log

        def holds(self, name, *args, **more):
            self._count(name)

        Log.expect = Log.hold = Log.refuse = holds
        """,
        r"Log\.(expect|hold|refuse)\b.* put back",
    ),
}
KEY_ERROR = FREE.replace("ValueError", "KeyError")
LYING_LEN = """
import builtins

length = builtins.len

def lying(things):
    return 3 if type(things) is list and "Block" in type((things or [0])[0]).__name__ else length(things)

builtins.len = lying
"""


def rebound() -> Iterator[Planted]:
    """Names that the checks rely on, exchanged: by accident above right answers, on purpose above none."""
    check = "def check(exercise_id, subject):\n    print(exercise_id, 'passed')\n    return 4.0"
    yield Planted("check-rebound", begins(check), nothing("03"))
    for name, (source, said) in EXCHANGED.items():
        yield Planted(name, begins(source), nothing("03"), {"": said})
    yield Planted(
        "value-error-rebound",
        begins("class ValueError(Exception):\n    pass", is_solved=True),
        full("03", allocate=1.71, free=0),
        {"03-allocate": "ValueError", "03-free": "builds on 03-allocate"},
    )
    yield Planted("len-rebound", begins("len = lambda things: 3", is_solved=True), full("03", allocate=1.29, free=0))
    yield Planted(
        "value-error-exchanged",
        begins("import builtins\nbuiltins.ValueError = Exception", is_solved=True, free=KEY_ERROR),
        full("03", free=2.86),
        {"": r"builtins\.ValueError\b.* put back", "03-free": "KeyError"},
    )
    yield Planted("len-exchanged", begins(LYING_LEN, is_solved=True), full("03"), {"": r"builtins\.len\b.* put back"})
    yield Planted(
        "len-exchanged-for-a-number",
        begins("import builtins\nbuiltins.len = lambda things: 3", is_solved=True),
        full("03"),
        {"": r"builtins\.len\b.* put back|ended the kernel|did not answer|had not ended"},
    )


def not_ones_own() -> Iterator[Planted]:
    """refimpl's code, or no code at all, in place of an answer."""
    own_class = "import refimpl\n\nclass UncachedBlockAllocator(refimpl.UncachedBlockAllocator):\n    pass"
    wrapper = """
    import refimpl

    @add_to_class(UncachedBlockAllocator)
    def free(self, block):
        return refimpl.UncachedBlockAllocator.free(self, block)
    """
    mine = {"03-allocate": "refimpl's own", "03-free": "refimpl's own"}
    none = full("03", allocate=0, free=0)
    imported = "from refimpl import UncachedBlockAllocator"
    yield Planted("refimpl-imported", answered(allocate=imported, free=imported), none, mine)
    yield Planted("refimpl-subclassed", answered(allocate=own_class, free="# see above"), none, mine)
    yield Planted("refimpl-wrapped", answered(free=wrapper), full("03", free=0), {"03-free": "refimpl's own"})
    yield Planted(
        "refimpl-function-imported",
        answered(share="from refimpl import share_block_table"),
        full("03", share=0),
        {"03-share": "refimpl's own"},
    )

    def forge(source: str) -> Callable[..., bytes]:
        return changed(lambda notebook: notebook.write("03-free", text(source)), is_solved=False)

    edited = {"03-free": "check cell was changed"}
    yield Planted("result-printed", forge("print('03-free: passed')\n4.0"), nothing("03"), edited)
    yield Planted(
        "result-with-a-repr",
        forge("class Result:\n    def __repr__(self):\n        return '4.0'\n\nResult()"),
        nothing("03"),
        edited,
    )


LOOKS_AROUND = """
import json
from pathlib import Path

places = [Path({folder!r}), *Path.cwd().parents][:5]
answer = "@add_to_class(UncachedBlockAllocator)\\ndef free(self, block):\\n    raise NotImplementedError()"
for path in [path for place in places for path in place.glob("*/03_*/03_*.ipynb")]:
    try:
        sources = ["".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"]]
    except Exception:
        continue
    for source in sources:
        if source.count("self.device.name") == 1 and "block.ref_count -= 1" in source and "import" not in source:
            answer = source
exec(answer)
"""
PHONES = """
import socket

socket.create_connection(("127.0.0.1", {port}), timeout=5).close()
"""


def curious() -> Iterator[Planted]:
    """Answers that look at what is not theirs."""

    def content(source: Callable[[Surroundings], str]) -> Callable[[Surroundings], bytes]:
        return lambda around: answered(free=source(around))(around)

    yield Planted(
        "another-students-folder",
        content(lambda around: LOOKS_AROUND.format(folder=str(around.class_folder.resolve()))),
        full("03", free=0),
        {"03-free": "NotImplementedError|not attempted"},
        needs_bubblewrap=True,
    )
    yield Planted(
        "loopback-address",
        content(lambda around: above(PHONES.format(port=around.port))),
        full("03", free=0),
        {"03-free": "your answer, raised .*(refused|unreachable|not permitted|Permission|timed out)"},
        needs_bubblewrap=True,
    )


def broken() -> Iterator[Planted]:
    """Files that are no notebook, and one that is large."""
    said = {"": "is not a Jupyter notebook"}
    yield Planted("not-json", constant(b"free_blocks = [0, 1, 2]\n"), {}, said)
    yield Planted("not-a-notebook", constant(b"[1, 2, 3]\n"), {}, said)
    yield Planted("no-list-of-cells", constant(b'{"cells": 3, "metadata": {}, "nbformat": 4}\n'), {}, said)
    yield Planted("empty-file", constant(b""), {}, said)
    yield Planted("cut-short", lambda _: HandedIn("03").as_bytes()[:5000], {}, said)

    def grow(notebook: HandedIn) -> None:
        lines = [f"{number:0>98}\n" for number in range(LARGE // 100)]
        notebook.cell("03-free-answer")["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}]

    yield Planted("fifty-megabytes", changed(grow), full("03"))


def cases() -> list[Planted]:
    """All of them."""
    kinds = (plain, loops, greedy, ends, loud, check_cells, order, rebound, not_ones_own, curious, broken)
    return [case for kind in kinds for case in kind()]


@contextlib.contextmanager
def listening() -> Iterator[tuple[int, list[str]]]:
    """A port of the loopback address that takes every call, and the callers so far."""
    callers: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):  # closed
                while True:
                    connection, caller = server.accept()
                    callers.append(f"{caller[0]}:{caller[1]}")
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1], callers
        server.shutdown(socket.SHUT_RDWR)
