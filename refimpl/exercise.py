"""An exercise notebook as Python: its cells, and the names that they define when they run in a module of their own.

Owns what a code cell is to the course: an answer, a check, or neither; which answers a check is about; and under which
name a cell stands in a traceback. Nothing here starts a kernel or needs Jupyter.
"""

from __future__ import annotations

import dataclasses
import json
import linecache
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

Namespace = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A cell and its source. `grade_id` is its cell id where it has no grade id; a check's is the id of its step."""

    grade_id: str
    source: str
    is_answer: bool
    is_check: bool
    kind: str = "code"  # or "markdown", "raw"
    is_marked: bool = False  # the grader knows it: it has a grade id

    @property
    def is_run(self) -> bool:
        """Whether it is code of the learner's or the author's, and no check."""
        return self.kind == "code" and bool(self.source.strip()) and not self.is_check


class CellRaised(Exception):
    """A cell raised an error; `grade_id` says which cell, `__cause__` which error."""

    def __init__(self, grade_id: str, error: BaseException) -> None:
        super().__init__(f"its cell {grade_id} raised {type(error).__name__}: {error}")
        self.grade_id = grade_id


def read(path: Path) -> list[Cell]:
    """The code cells of a notebook, in order.

    Raises:
        ValueError: when the file is no notebook.
        OSError: when it cannot be read.
    """
    return [cell for cell in read_all(path) if cell.kind == "code"]


def read_all(path: Path) -> list[Cell]:
    """All cells of a notebook, in order, texts included; errors are those of `read`."""
    try:
        return [cell_of(cell) for cell in json.loads(path.read_text("utf-8"))["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a Jupyter notebook") from error


def cell_of(cell: dict[str, Any]) -> Cell:
    """A cell as it stands in a notebook file.

    >>> cell_of({"cell_type": "code", "metadata": {}, "source": ["one = ", "1"], "id": "a"}).source
    'one = 1'
    """
    graded = cell["metadata"].get("nbgrader", {})
    is_answer = graded.get("solution", False)
    return Cell(
        grade_id=graded.get("grade_id") or cell.get("id", ""),
        source="".join(cell["source"]),
        is_answer=is_answer,
        is_check=graded.get("grade", False) and not is_answer,
        kind=cell["cell_type"],
        is_marked="grade_id" in graded,
    )


def answers_of(exercise_id: str, cells: Iterable[Cell]) -> list[Cell] | None:
    """The answer cells of a step: those above its check and below the check before. None without such a check."""
    found: list[Cell] = []
    for cell in cells:
        if cell.is_check and cell.grade_id == exercise_id:
            return found
        found = [] if cell.is_check else [*found, cell] if cell.is_answer else found
    return None


class Runner:
    """Runs cells, each compiled once, under names such as `my_work/03…ipynb, cell 03-free-answer`.

    Args:
        name: of the modules that it makes.
        where: what stands in front of the cell in a traceback.

    >>> runner = Runner("exercise_03", "03.ipynb")
    >>> runner.run([Cell("given", "one = 1", False, False), Cell("more", "two = one + 1", True, False)])["two"]
    2
    """

    def __init__(self, name: str, where: str) -> None:
        self.name, self.where = name, where
        self._code: dict[tuple[str, str], Any] = {}

    def run(self, cells: Iterable[Cell]) -> Namespace:
        """The names that these cells define, all of them new; checks are left out.

        Raises:
            CellRaised: for the first cell that raises.
        """
        names = self.module()
        for error in self.run_in(names, cells):
            raise error from error.__cause__
        return names

    def module(self) -> Namespace:
        """The names of a new module."""
        module = ModuleType(self.name)
        sys.modules[self.name] = module  # where dataclasses and inspect look for the names of a class's module
        return vars(module)

    def run_in(self, names: Namespace, cells: Iterable[Cell]) -> Iterator[CellRaised]:
        """Run cells one by one, checks left out; an error is yielded, and whoever goes on asking goes on running."""
        for cell in cells:
            if not cell.is_check:
                try:
                    exec(self._compiled(cell), names)
                except (Exception, SystemExit) as error:  # noqa: BLE001  (an author's or a learner's code)
                    raised = CellRaised(cell.grade_id, error)
                    raised.__cause__ = error
                    yield raised

    def _compiled(self, cell: Cell) -> Any:
        key = cell.grade_id, cell.source
        if key not in self._code:
            versions = sum(grade_id == cell.grade_id for grade_id, _ in self._code)
            name = f"{self.where}, cell {cell.grade_id}" + f" ({versions + 1})" * (versions > 0)
            linecache.cache[name] = (len(cell.source), None, cell.source.splitlines(keepends=True), name)
            self._code[key] = compile(cell.source, name, "exec", dont_inherit=True)
        return self._code[key]
