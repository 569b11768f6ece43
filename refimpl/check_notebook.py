"""`python -m refimpl check`: an exercise notebook run from a clean kernel, as a grader runs it, and what is wrong.

Owns what a learner wants to know before handing in. Every cell is run in order in a new kernel that works in the
notebook's own folder, and the file is only read. A check cell is not run: in its place the kernel is asked to check the
subject, and the answer is read from its reply, so nothing that a cell prints or calls `check` can pass for a result. It
keeps accidents from being taken for points and is no security boundary: cells run in the same process as the checks.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import queue
import re
import symtable
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from refimpl.checks import CheckResult
from refimpl.checks.catalogue import chapter_numbers, find
from refimpl.checks.engine import examine
from refimpl.checks.step import Step, counted, one_line, said
from refimpl.exercise import Cell, read_all
from refimpl.work import chapter_steps, not_installed

CELL_TIMEOUT = 60.0  # seconds, as for the grader
START_TIMEOUT = 60.0  # seconds for the kernel to come up
PATIENCE = 5.0  # seconds in which an interrupted cell may end


class CannotRun(Exception):
    """Nothing can be said of the notebook; the text says why."""


class KernelDied(Exception):
    """The kernel is gone; the text says what a cell did to it."""


@dataclasses.dataclass(frozen=True, slots=True)
class StepReport:
    """What the clean run says of one step: the check's result, and what is wrong with the check cell itself."""

    result: CheckResult
    faults: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to mend."""
        return self.result.passed and not self.faults


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """All that is said of one notebook. `faults` are those of the notebook as a whole, `notes` take nothing away."""

    path: str
    steps: tuple[StepReport, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether every step passed and nothing is wrong."""
        return not self.faults and all(step.is_good for step in self.steps)

    @property
    def points(self) -> float:
        """Of all steps together."""
        return round(sum(step.result.points for step in self.steps), 2)

    @property
    def max_points(self) -> int:
        """Of all steps together."""
        return sum(step.result.max_points for step in self.steps)

    def lines(self) -> Iterator[str]:
        """The report as text: a line a step, a line a fault, a total."""
        yield self.path
        for step in self.steps:
            result = step.result
            text = " ".join([*step.faults, *result.message.split()])
            points = f"{result.points:g} of {result.max_points}"
            yield f"  {result.exercise_id:<24} {result.outcome:<13} {points:>10}   {text}"
        yield from (f"  Wrong: {fault}" for fault in self.faults)
        yield from (f"  Note: {note}" for note in self.notes)
        yield self._total()

    def _total(self) -> str:
        passed = sum(step.result.passed for step in self.steps)
        untouched = [step.result.exercise_id for step in self.steps if step.result.outcome == "not attempted"]
        total = f"  total: {self.points:g} of {self.max_points} points, {passed} of {len(self.steps)} steps passed"
        return total + f"; not attempted: {', '.join(untouched)}" * bool(untouched)

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "path": self.path,
            "good": self.is_good,
            "points": self.points,
            "max_points": self.max_points,
            "steps": [{**dataclasses.asdict(step.result), "faults": step.faults} for step in self.steps],
            "faults": self.faults,
            "notes": self.notes,
        }


# The notebook as it is written: no kernel is needed for this.


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a step is checked: at the cell of this index, or after the last one; what is wrong with its check cell."""

    index: int | None
    faults: tuple[str, ...]


class Document:
    """An exercise notebook: its cells, and how they are named to a reader.

    Raises:
        CannotRun: when the file is missing, is no notebook or no exercise of the course.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells = _cells(path)
        self.number = _chapter(self.cells)
        if self.number is None:
            raise CannotRun(
                f"{path} holds no exercise of the course: no cell of it is marked as an answer or a check of a step."
            )
        try:
            self.steps = chapter_steps(self.number)
        except ModuleNotFoundError as error:
            raise CannotRun(f"{path}: {not_installed(str(error.name))}") from error

    def label(self, index: int) -> str:
        """A cell by the number that *Run All* gives it; a text has none."""
        cell = self.cells[index]
        number = sum(earlier.kind == "code" and bool(earlier.source.strip()) for earlier in self.cells[: index + 1])
        return f"cell [{number}]" if cell.kind == "code" else f"the {cell.kind.title()} cell"

    def name(self, index: int) -> str:
        """A cell by its number and the line that shows it best."""
        lines = [line.strip() for line in self.cells[index].source.splitlines() if line.strip()]
        best = next((line for line in lines if not line.startswith(("@", "#", "%"))), "".join(lines[:1]))
        return f"{self.label(index)} (`{one_line(best, 60)}`)" if best else f"{self.label(index)} (empty)"

    def place(self, step: Step) -> Place:
        """Where the step is checked, and whether its check cell is the released one, once, below its answers."""
        source = released_check(step)
        marked = [i for i, cell in enumerate(self.cells) if cell.is_check and cell.grade_id == step.exercise_id]
        typed = [i for i, cell in enumerate(self.cells) if cell.kind == "code" and cell.source.strip() == source]
        found = marked or typed[-1:]
        if not found:
            return Place(None, (f"Its check cell is missing: write `{source}` in a cell below your answer.",))
        index = found[-1]
        return Place(index, tuple(self._faults(step, found, index)))

    def _faults(self, step: Step, found: Sequence[int], index: int) -> Iterator[str]:
        cell, source = self.cells[index], released_check(step)
        if len(found) > 1:
            where = " and ".join(map(self.label, found))
            yield f"Its check cell is there {len(found)} times, {where}, and a grader wants it once: delete the copies."
        if cell.kind != "code":
            yield f"Its check cell is a {cell.kind.title()} cell and does not run: make it a code cell again."
        if cell.source.strip() != source:
            yield f"Its check cell was changed, {self.name(index)}: put `{source}` back; that is what was checked here."
        for name in step.asks_for:
            answers = [i for i, cell in enumerate(self.cells) if cell.kind == "code" and _answers(step, name, cell)]
            if answers and answers[0] > index:
                yield (
                    f"Its check stands above the answer that it checks: move it below {self.name(answers[0])}, where "
                    f"`{name}` is defined."
                )

    def copies(self) -> Iterator[str]:
        """Answers that carry one mark twice, as when a cell is copied or split."""
        marks = Counter(cell.grade_id for cell in self.cells if cell.is_answer and cell.is_marked)
        for grade_id in (mark for mark, times in marks.items() if times > 1):
            found = [i for i, cell in enumerate(self.cells) if cell.is_answer and cell.grade_id == grade_id]
            where = " and ".join(map(self.label, found))
            yield (
                f"{_upper(self.name(found[0]))} is there {len(found)} times, {where}, as happens when a cell is copied "
                f"or split, and a grader wants it once: merge them, or delete the copy."
            )

    def strangers(self) -> list[int]:
        """The checks that are no step of this chapter, as this version of the course knows it."""
        known = {step.exercise_id for step in self.steps}
        return [i for i, cell in enumerate(self.cells) if cell.is_check and cell.grade_id not in known]

    def out_of_order(self, index: int | None, name: str) -> str | None:
        """What to say when a clean run does not know `name` at this cell and only a later one defines it."""
        if index is None:
            return None
        cells = [i for i, cell in enumerate(self.cells) if cell.kind == "code" and i != index]
        definers = [i for i in cells if name in defines(self.cells[i].source)]
        if not definers or definers[0] < index:
            return None
        return (
            f"{_upper(self.name(index))} needs `{name}`, which is only defined below it, in {self.name(definers[0])}: "
            f"that works when cells are run out of order, and not when they are run from top to bottom. Move that cell "
            f"up."
        )


def _cells(path: Path) -> list[Cell]:
    if path.is_dir():
        pattern = "*.ipynb" if any(path.glob("*.ipynb")) else "*/*.ipynb"
        raise CannotRun(f"{path} is a folder: name the notebooks in it, such as {path / pattern}")
    try:
        return read_all(path)
    except FileNotFoundError as error:
        raise CannotRun(f"there is no file {path}") from error
    except OSError as error:
        raise CannotRun(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CannotRun(str(error)) from error


def _chapter(cells: Sequence[Cell]) -> str | None:
    """The chapter that most of the cells belong to, by their marks or, where those are lost, by their checks."""
    ids = [cell.grade_id if cell.is_marked else _checked_id(cell.source) for cell in cells]
    numbers = Counter(grade_id[:2] for grade_id in ids if re.match(r"\d\d-", grade_id))
    known = [number for number, _ in numbers.most_common() if number in chapter_numbers()]
    return known[0] if known else None


def _checked_id(source: str) -> str:
    """The exercise id in a cell that is a check and nothing else, otherwise an empty string."""
    found = re.fullmatch(r'check\("([\w-]+)", \w+\)', source.strip())
    return found[1] if found else ""


def released_check(step: Step) -> str:
    """What stands in the step's check cell."""
    return f'check("{step.exercise_id}", {step.subject})'


def defines(source: str) -> set[str]:
    r"""The names that a cell defines when it runs.

    >>> sorted(defines("import os.path\n%time x = 1\ndef f(y): z = y\nfor i in []: pass"))
    ['f', 'i', 'os']
    """
    try:
        table = symtable.symtable(_python_of(source), "cell", "exec")
    except SyntaxError:
        return set()
    return {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def _answers(step: Step, name: str, cell: Cell) -> bool:
    """Whether the cell defines `name`, the method or function that the step asks for."""
    try:
        body = ast.parse(_python_of(cell.source)).body
    except SyntaxError:
        return re.search(rf"^\s*def {name}\b", cell.source, re.MULTILINE) is not None
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == step.subject:
            body = [*body, *node.body]
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if any(node.name == name and _joins(node) in (None, step.subject) for node in functions):
        return True
    return not step.writes and name in defines(cell.source)


def _joins(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
    """The class that `@add_to_class(...)` above the function names, if any."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and decorator.args:
            return ast.unparse(decorator.args[0])
    return None


def _python_of(source: str) -> str:
    """The lines that are Python, and no magics or shell commands."""
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith(("%", "!")))


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


# The kernel: what it is sent, and what it is asked.


@dataclasses.dataclass(frozen=True, slots=True)
class Error:
    """What ended a cell: the error in words, the cell's own line, and the name that was not known, if that was it."""

    kind: str
    text: str
    line: str
    name: str | None


class Kernel:
    """A clean kernel that works in a folder: nothing of a user's start-up files, and a home of its own for its files.

    Args:
        manager, client: jupyter_client's own.
    """

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager, self._client = manager, client

    def run(self, source: str, limit: float) -> Error | None:
        """Run one cell, which reads from nobody; what ended it, or None.

        Raises:
            TimeoutError: when it had not ended after `limit` seconds; it was interrupted, and others may follow.
            KernelDied: when the cell took the kernel down, or could not be interrupted.
        """
        message = self._client.execute(source, allow_stdin=False, stop_on_error=False)
        reply = self._reply(message, limit)
        if reply is None:
            self._manager.interrupt_kernel()
            if self._reply(message, PATIENCE) is None:
                raise KernelDied(f"had not ended after {limit:g} seconds and could not be interrupted")
            raise TimeoutError
        if any(payload.get("source") == "ask_exit" for payload in reply.get("payload", ())):
            raise KernelDied("ended the kernel: it calls `exit` or `quit`")
        if reply["status"] == "ok":
            return None
        found: dict[str, Any] = json.loads(self.ask(last_error))
        return Error(reply["ename"], **found)

    def ask(self, function: Callable[..., str], *args: str, limit: float = CELL_TIMEOUT) -> str:
        """What a function of this module answers in the kernel.

        Raises:
            CannotRun: when it raised; KernelDied.
        """
        called = f"{function.__name__}({', '.join(map(repr, args))})"
        expression = f"__import__('importlib').import_module({__name__!r}).{called}"
        message = self._client.execute("", silent=True, allow_stdin=False, user_expressions={"answer": expression})
        reply = self._reply(message, limit)
        if reply is None:
            raise KernelDied(f"did not answer within {limit:g} seconds")
        answer = reply["user_expressions"]["answer"]
        if answer["status"] != "ok":
            raise CannotRun(f"the kernel cannot check anything: {answer['ename']}: {answer['evalue']}")
        text: str = ast.literal_eval(answer["data"]["text/plain"])
        return text

    def _reply(self, message: str, limit: float) -> dict[str, Any] | None:
        """The content of the reply to a message, None when there is none in time."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            try:
                reply = self._client.get_shell_msg(timeout=0.2)
            except queue.Empty:
                if not self._manager.is_alive():
                    reason = "its code left Python, crashed it, or took more memory than there is"
                    raise KernelDied(f"ended the kernel: {reason}") from None
                continue
            if reply["parent_header"].get("msg_id") == message:
                content: dict[str, Any] = reply["content"]
                return content
        return None


@contextlib.contextmanager
def clean_kernel(folder: Path) -> Iterator[Kernel]:
    """A new kernel that works in `folder` and is gone afterwards.

    Raises:
        CannotRun: when there is none to be had.
    """
    try:
        from jupyter_client.kernelspec import NoSuchKernel
        from jupyter_client.manager import KernelManager
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error}; it comes with `pip install refimpl[lab]`") from error
    with tempfile.TemporaryDirectory(prefix="refimpl-check-") as home:
        manager = KernelManager(kernel_name="python3", connection_file=str(Path(home) / "kernel.json"))
        nowhere = {"stdout": os.open(os.devnull, os.O_WRONLY), "stderr": os.open(os.devnull, os.O_WRONLY)}
        try:
            manager.start_kernel(cwd=str(folder), env={**os.environ, "IPYTHONDIR": home}, **nowhere)
        except (NoSuchKernel, OSError) as error:
            raise CannotRun(f"no Python kernel starts: {error}; `pip install ipykernel` brings one") from error
        finally:
            for descriptor in nowhere.values():
                os.close(descriptor)
        client = manager.client()
        client.start_channels(stdin=False)
        try:
            try:
                client.wait_for_ready(timeout=START_TIMEOUT)
            except RuntimeError as error:
                raise CannotRun(f"the Python kernel does not start: {error}") from error
            kernel = Kernel(manager, client)
            kernel.ask(ready)
            yield kernel
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def ready() -> str:
    """In the kernel: the package is there, and in memory before any cell can be in its way."""
    return "ready"


def last_error() -> str:
    """In the kernel: what ended the last cell, without the frames of anybody but its author."""
    from ipykernel.compiler import get_tmp_directory

    error: Any = sys.last_value
    here: str = get_tmp_directory()  # type: ignore[no-untyped-call]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(here)]
    text, line = said(error).rstrip("."), frames[-1].line if frames else ""
    if isinstance(error, SyntaxError):
        text, line = f"{type(error).__name__}: {error.msg}", error.text
    name = error.name if isinstance(error, NameError | ModuleNotFoundError) else None
    return json.dumps({"text": text, "line": one_line(line or ""), "name": name})


def examined(exercise_id: str) -> str:
    """In the kernel: the result of a step's check as JSON, null where the notebook defines no subject for it."""
    from IPython.core.getipython import get_ipython

    step, names = find(exercise_id), get_ipython().user_ns  # type: ignore[union-attr]
    try:
        result = examine(step, names[step.subject]) if step.subject in names else None
    except ModuleNotFoundError as error:
        result = _result(step, "not attempted", not_installed(str(error.name)))
    return json.dumps(result and dataclasses.asdict(result))


def _result(step: Step, outcome: Any, message: str) -> CheckResult:
    return CheckResult(step.exercise_id, step.title, outcome, 0.0, step.points, message)


# The clean run.


class CleanRun:
    """One notebook, from its first cell to its last.

    Args:
        document: the notebook.
        timeout: seconds for one cell.
    """

    def __init__(self, document: Document, timeout: float) -> None:
        self.document, self.timeout = document, timeout
        self.places = {step.exercise_id: document.place(step) for step in document.steps}
        self.results: dict[str, CheckResult] = {}
        self.faults: list[str] = list(document.copies())
        self.failed: dict[int, str] = {}  # cell -> what it did
        self.has_raised = False  # and the first such fault is told; those that follow may come of it
        self.end = ""  # what took the kernel down

    def report(self) -> Report:
        """Run everything, and say what was found.

        Raises:
            CannotRun: when no kernel can be had, or it cannot check.
        """
        document = self.document
        with clean_kernel(document.path.resolve().parent) as kernel:
            self._run(kernel)
        if self.end:
            self.faults.append(self.end)
        strangers = [document.cells[i].grade_id for i in document.strangers()]
        return Report(
            str(document.path),
            tuple(StepReport(self._said(step), self.places[step.exercise_id].faults) for step in document.steps),
            tuple(self.faults),
            tuple(
                f"{name} is no step of chapter {document.number} that is known here; it was left out."
                for name in strangers
            ),
        )

    def _run(self, kernel: Kernel) -> None:
        step_at = {self.places[step.exercise_id].index: step for step in self.document.steps}
        for index, cell in enumerate(self.document.cells):
            if index in step_at:
                self._check(kernel, step_at[index])
            elif cell.kind == "code" and cell.source.strip() and not cell.is_check:
                self._run_cell(kernel, index)
            if self.end:
                return
        for step in self.document.steps:
            if self.places[step.exercise_id].index is None and not self.end:
                self._check(kernel, step)

    def _run_cell(self, kernel: Kernel, index: int) -> None:
        name = _upper(self.document.name(index))
        try:
            error = kernel.run(self.document.cells[index].source, self.timeout)
        except TimeoutError:
            self.failed[index] = f"had not ended after {self.timeout:g} seconds"
            self.faults.append(
                f"{name} had not ended after {self.timeout:g} seconds and was stopped: look for a loop that never ends."
            )
            return
        except KernelDied as death:
            self.end = f"{name} {death}; what follows was not run."
            return
        if error is not None:
            self._tell(index, error)
            self.failed[index] = f"raised {error.text}{_at(error)}"

    def _tell(self, index: int, error: Error) -> None:
        """A fault for what ended a cell: the first one, and each that comes of the order of the cells."""
        unknown = str(error.name) if error.kind == "NameError" else ""
        order = self.document.out_of_order(index, unknown)
        if order is not None:
            self.faults.append(order)
        elif not self.has_raised and not any(unknown in defines(self.document.cells[i].source) for i in self.failed):
            self.has_raised = True
            name = _upper(self.document.name(index))
            self.faults.append(f"{name} raised {error.text}{_at(error)}. {self._advice(error)}")

    def _advice(self, error: Error) -> str:
        if error.kind == "ModuleNotFoundError":
            return not_installed(str(error.name))
        if error.kind == "NameError" and not any(error.name in defines(cell.source) for cell in self.document.cells):
            return f"No cell defines `{error.name}` any more: it was in one that is gone, or has another name now."
        if error.kind == "StdinNotImplementedError":
            return "Nobody answers `input()` when a notebook is graded: write the value into the cell."
        return "Mend it or delete it."

    def _check(self, kernel: Kernel, step: Step) -> None:
        try:
            found = json.loads(kernel.ask(examined, step.exercise_id))
        except KernelDied as death:
            self.end = f"The check of {step.exercise_id} {death}; what follows was not run."
            return
        if found is not None:
            self.results[step.exercise_id] = CheckResult(**{**found, "trace": tuple(found["trace"])})
        else:
            self.results[step.exercise_id] = _result(step, "not attempted", f"No cell above defines `{step.subject}`.")

    def _said(self, step: Step) -> CheckResult:
        """The check's result; where an answer did not run, that, for it is what the learner must know first."""
        result = self.results.get(step.exercise_id)
        if result is not None and result.passed:
            return result
        for index, what in self.failed.items():
            if any(_answers(step, name, self.document.cells[index]) for name in step.asks_for):
                return _result(step, "raised", f"{_upper(self.document.name(index))}, your answer, {what}.")
        if result is None:
            return _result(step, "raised", "It was not checked: the kernel had gone before.")
        unknown = re.search(r"NameError: name '(\w+)' is not defined", result.message)
        order = unknown and self.document.out_of_order(self.places[step.exercise_id].index, unknown[1])
        return dataclasses.replace(result, message=f"{result.message} {order}") if order else result


def _at(error: Error) -> str:
    return f", at its line `{error.line}`" if error.line else ""


def main(paths: Sequence[Path], as_json: bool = False, timeout: float = CELL_TIMEOUT) -> int:
    """Check notebooks for the command line.

    Returns 0 when every step of all of them passed and nothing is wrong, 1 when something is, and 2 when one of them
    cannot be run; then none is.
    """
    documents, refused = [], []
    for path in paths:
        try:
            documents.append(Document(path))
        except CannotRun as error:
            refused.append(str(error))
    reports: list[Report] = []
    try:
        for document in documents if not refused else ():
            reports.append(CleanRun(document, timeout).report())
            if not as_json:
                print("\n".join(reports[-1].lines()), flush=True)
    except CannotRun as error:
        refused.append(f"{document.path}: {error}")
    if refused:
        print("\n".join(f"check: {reason}" for reason in refused), file=sys.stderr)
        return 2
    if as_json:
        print(json.dumps([report.as_json() for report in reports], indent=2, ensure_ascii=False))
    elif len(reports) > 1:
        good = sum(report.is_good for report in reports)
        points, most = sum(report.points for report in reports), sum(report.max_points for report in reports)
        print(f"{good} of {counted(len(reports), 'notebook')} without a fault, {points:g} of {most} points")
    return int(not all(report.is_good for report in reports))
