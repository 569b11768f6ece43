"""An exercise notebook as a learner hands it in: solved, as released, or with wrong answers in its cells.

Owns the way from a wrong solution in `tests/mutants/` to cells: a function takes the place of the one that an answer
cell defines, below the same decorators. Nothing is run here, and the same changes give the same bytes.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from refimpl.check_notebook.document import defines
from refimpl.checks.step import Step
from refimpl.proof import Chapter

ROOT = Path(__file__).parents[2]
JsonCell = dict[str, Any]


def chapters() -> dict[str, str]:
    """Number -> name of each chapter that has an exercise.

    >>> chapters()["03"]
    '03_uncached_allocator'
    """
    return {path.name[:2]: path.name for path in sorted((ROOT / "exercises").glob("[0-9]*"))}


@cache
def chapter(number: str) -> Chapter:
    """The exercise of a chapter, from which subjects are made."""
    return Chapter(ROOT, number)


class HandedIn:
    """The exercise of one chapter.

    Args:
        number: of the chapter.
        is_solved: whether the answers of `solutions/` stand in its cells; otherwise they are as released.

    >>> HandedIn("03", is_solved=False).cell("03-share-answer")["source"].splitlines()[-1]
    '    raise NotImplementedError()'
    >>> HandedIn("03").cell("03-share-answer")["source"].splitlines()[-1]
    '    return block_table.copy()'
    """

    def __init__(self, number: str, is_solved: bool = True) -> None:
        self.number = number
        name = chapters()[number]
        self.content: dict[str, Any] = json.loads((ROOT / f"exercises/{name}/{name}.ipynb").read_text("utf-8"))
        self.cells: list[JsonCell] = self.content["cells"]
        for cell in self.cells:
            cell["source"] = "".join(cell["source"])
        self._stubs = {cell["id"]: cell["source"] for cell in self.cells}
        self._own = 0  # cells written by the learner
        if is_solved:
            for solved in chapter(number).solved:
                if solved.is_answer:
                    self.write(solved.grade_id, _without_marks(solved.source))

    def at(self, name: str) -> int:
        """The place of a cell, by its id or its grade id; the first, if there are copies."""
        return next(i for i, cell in enumerate(self.cells) if name in (cell["id"], _grade_id(cell)))

    def cell(self, name: str) -> JsonCell:
        """A cell, to be changed."""
        return self.cells[self.at(name)]

    def write(self, name: str, source: str) -> None:
        """What stands in a cell from now on."""
        self.cell(name)["source"] = source.strip("\n")

    def put(self, source: str, before: str) -> None:
        """A cell of the learner's own above another."""
        self._own += 1
        cell = {"cell_type": "code", "execution_count": None, "id": f"own-{self._own}", "metadata": {}, "outputs": []}
        self.cells.insert(self.at(before), {**cell, "source": source.strip("\n")})

    def copy(self, name: str, before: str, source: str | None = None) -> None:
        """A cell once more, mark included, as when it is copied or split in JupyterLab."""
        cell = json.loads(json.dumps(self.cell(name)))
        self._own += 1
        cell["id"] = f"own-{self._own}"
        cell["source"] = cell["source"] if source is None else source.strip("\n")
        self.cells.insert(self.at(before), cell)

    def leave(self, step: Step) -> None:
        """The step's answers as they were released."""
        for grade_id in chapter(self.number).answers_of(step):
            self.write(grade_id, self._stubs[self.cell(grade_id)["id"]])

    def answer_wrongly(self, step: Step, mutant: Path) -> None:
        """A wrong solution in the step's answer cells: each function in its own, all else above the first."""
        cells = {
            name: cell for cell in map(self.cell, self._answers(step)) for name in _functions(cell["source"])
        }  # what an answer cell defines -> the cell
        written: dict[str, str] = {}  # grade id -> source
        rest = []
        first = self.cell(self._answers(step)[0])
        for node, source in _nodes(mutant):
            if (name := getattr(node, "name", "")) in cells or name == step.subject:
                cell = cells.get(name, first)
                decorators = _functions(cell["source"]).get(name, [])
                written[_grade_id(cell)] = "\n".join([*decorators, source])
            elif (kept := _without_imports_of(_own(self.number), node, source)) is not None:
                rest.append(kept)
        for place, name in enumerate(sorted(written, key=self.at)):
            self.write(name, "\n\n\n".join([*rest * (place == 0), written[name]]))

    def as_bytes(self) -> bytes:
        """The file."""
        return (json.dumps(self.content, indent=1, ensure_ascii=False) + "\n").encode()

    def _answers(self, step: Step) -> list[str]:
        return chapter(self.number).answers_of(step)


def borrowed(number: str, mutant: Path) -> set[str]:
    """The names of the chapter's own that a wrong solution takes from refimpl: in a notebook they are the notebook's.

    >>> borrowed("02", ROOT / "tests/mutants/02-slots/offset-left-out.py")
    {'locate'}
    """
    return {name for node, _ in _nodes(mutant) for name in _imported(node)} & _own(number)


@cache
def _own(number: str) -> set[str]:
    """The functions and classes that the cells of a chapter define."""
    return {name for cell in chapter(number).solved for name in _definitions(cell.source)}


def _grade_id(cell: JsonCell) -> str:
    return str(cell["metadata"].get("nbgrader", {}).get("grade_id", ""))


def _without_marks(source: str) -> str:
    """An answer without the lines that tell nbgrader where it begins and ends."""
    lines = (line for line in source.splitlines() if not line.strip().startswith(("### BEGIN", "### END")))
    return "\n".join(lines)


def _nodes(mutant: Path) -> Iterable[tuple[ast.stmt, str]]:
    """The statements of a file with their text; its docstring, the thought, is none."""
    text = mutant.read_text("utf-8")
    lines = text.splitlines()
    for node in ast.parse(text).body[1:]:
        start = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
        yield node, "\n".join(lines[start - 1 : node.end_lineno])


def _functions(source: str) -> dict[str, list[str]]:
    """The functions that a cell defines, each with the lines of its decorators."""
    return {
        node.name: [f"@{ast.unparse(decorator)}" for decorator in node.decorator_list]
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }


def _definitions(source: str) -> set[str]:
    """The functions and classes that a cell defines."""
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a cell that draws with a magic
        return set()
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _imported(node: ast.stmt) -> set[str]:
    return defines(ast.unparse(node)) if isinstance(node, ast.Import | ast.ImportFrom) else set()


def _without_imports_of(own: set[str], node: ast.stmt, source: str) -> str | None:
    """The statement's text; an import leaves out the names that are the notebook's own, None when that is all."""
    if not isinstance(node, ast.ImportFrom) or not own & _imported(node):
        return source
    node.names = [alias for alias in node.names if (alias.asname or alias.name) not in own]
    return ast.unparse(node) if node.names else None
