"""An exercise notebook as it is written: where each step is checked, and what is wrong with that. No kernel yet."""

from __future__ import annotations

import ast
import dataclasses
import re
import symtable
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from refimpl.check_notebook.report import CannotRun
from refimpl.checks.catalogue import chapter_numbers
from refimpl.checks.step import Step, one_line
from refimpl.exercise import Cell, read_all
from refimpl.work import chapter_steps, not_installed


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a step is checked.

    Args:
        cell: the index of its check cell, None without one.
        below: the index of the cell below which it is checked: its check cell, or its answer where the check stands
            above that or is missing; None where the answer is missing, too, and it comes after the last cell.
        faults: what is wrong with the check cell, a sentence each.
    """

    cell: int | None
    below: int | None
    faults: tuple[str, ...]


class Document:
    """An exercise notebook: its cells, and how they are named to a reader.

    Args:
        path: of the file.
        cells: where they have been read already.

    Raises:
        CannotRun: when the file is missing, is no notebook or no exercise of the course.
    """

    def __init__(self, path: Path, cells: list[Cell] | None = None) -> None:
        self.path = path
        self.cells = _cells(path) if cells is None else cells
        number = chapter_of(self.cells)
        if number is None:
            raise CannotRun(
                f"{path} holds no exercise of the course: no cell of it is marked as an answer or a check of a step."
            )
        self.number = number
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
        firsts = [answers[0] for name in step.asks_for if (answers := self.answers(step, name))]
        if not found:
            fault = f"Its check cell is missing: write `{source}` in a cell below your answer."
            return Place(None, max(firsts, default=None), (fault,))
        index = found[-1]
        return Place(index, max([index, *firsts]), tuple(self._faults(step, found, index)))

    def answers(self, step: Step, name: str) -> list[int]:
        """The cells that define `name`, which the step asks for."""
        return [i for i, cell in enumerate(self.cells) if cell.kind == "code" and is_answer(step, name, cell)]

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
            answers = self.answers(step, name)
            if answers and answers[0] > index:
                yield (
                    f"Its check stands above the answer that it checks: move it below {self.name(answers[0])}, where "
                    f"`{name}` is defined. That is where it was checked here."
                )

    def copies(self) -> Iterator[str]:
        """Answers that carry one mark twice, as when a cell is copied or split."""
        marks = Counter(cell.grade_id for cell in self.cells if cell.is_answer and cell.is_marked)
        for grade_id in (mark for mark, times in marks.items() if times > 1):
            found = [i for i, cell in enumerate(self.cells) if cell.is_answer and cell.grade_id == grade_id]
            where = " and ".join(map(self.label, found))
            yield (
                f"{upper(self.name(found[0]))} is there {len(found)} times, {where}, as happens when a cell is copied "
                f"or split, and a grader wants it once: merge them, or delete the copy."
            )

    def strangers(self) -> list[int]:
        """The checks that are no step of this chapter, as this version of the course knows it."""
        known = {step.exercise_id for step in self.steps}
        return [i for i, cell in enumerate(self.cells) if cell.is_check and cell.grade_id not in known]

    def out_of_order(self, index: int | None, name: str) -> str | None:
        """What to say when a clean run does not know `name` at the cell of this index, and a later one defines it."""
        if index is None:
            return None
        cells = [i for i, cell in enumerate(self.cells) if cell.kind == "code" and i != index]
        definers = [i for i in cells if name in defines(self.cells[i].source)]
        if not definers or definers[0] < index:
            return None
        return (
            f"{upper(self.name(index))} needs `{name}`, which is only defined below it, in {self.name(definers[0])}: "
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


def chapter_of(cells: Sequence[Cell]) -> str | None:
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


def is_answer(step: Step, name: str, cell: Cell) -> bool:
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


def upper(text: str) -> str:
    """The text with a capital in front."""
    return text[:1].upper() + text[1:]
