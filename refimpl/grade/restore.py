"""A submission as the gradebook gets it: the learner's cells, the check cells as they were released, and the marks.

Always holds: each step's check stands there once, with the released source and lock, and its output is what the marker
found, so nothing that a learner wrote, printed or copied can be read as a mark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell

from refimpl.check_notebook.document import Document
from refimpl.check_notebook.report import StepReport
from refimpl.checks.result import prose
from refimpl.exercise import cell_of
from refimpl.grade.marks import Marks
from refimpl.notebooks import KERNELSPEC, LANGUAGE_INFO, read

_KINDS = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}


def marked(notebook: bytes, released: Path, marks: Marks) -> NotebookNode:
    """The notebook with its marks.

    Args:
        notebook: what was run of it; where it was not, the exercise as released stands in for it.
        released: the exercise.
        marks: of the notebook.
    """
    originals = {cell.metadata.nbgrader.grade_id: cell for cell in read(released).cells if "nbgrader" in cell.metadata}
    cells_run = [cell_of(cell) for cell in json.loads(notebook)["cells"]] if notebook else None
    document = Document(released, cells_run)
    steps = {step.result.exercise_id: step for step in marks.report.steps}
    cells, placed = [_remarks(marks)] if marks.remarks or marks.report.notes else [], set[str]()
    places = {step.exercise_id: document.place(step) for step in document.steps}
    in_place = {place.cell for place in places.values() if place.cell == place.below}
    checks = {name: _check(originals[name], step) for name, step in steps.items()}
    for index, cell in enumerate(document.cells):
        if index not in in_place:
            is_first_answer = cell.is_answer and cell.grade_id in originals and cell.grade_id not in placed
            original = originals[cell.grade_id] if is_first_answer else None
            placed.add(cell.grade_id)
            cells.append(_KINDS.get(cell.kind, new_raw_cell)(cell.source, metadata=_kept(original)))
        cells.extend(checks[name] for name, place in places.items() if place.below == index)
    cells.extend(checks[name] for name, place in places.items() if place.below is None)
    metadata = {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO, "refimpl": {"marks": marks.digest}}
    for number, written in enumerate(cells):
        written["id"] = f"cell-{number}"  # the same each time that a submission is marked
    restored: NotebookNode = new_notebook(cells=cells, metadata=from_dict(metadata))
    return restored


def digest_of(autograded: Path) -> str | None:
    """The digest of the marks that an autograded notebook holds, None where there is no such notebook."""
    try:
        kept: str = json.loads(autograded.read_bytes())["metadata"]["refimpl"]["marks"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kept


def _check(released: NotebookNode, step: StepReport) -> NotebookNode:
    """The released check cell, and what was found as its output; said once, for pages show panel and text alike."""
    result = step.result
    cell: NotebookNode = new_code_cell(released.source, metadata=_kept(released))
    faults = "".join(f"<p>{prose(fault)}</p>" for fault in step.faults)
    page = {"text/plain": repr(result), "text/html": faults + result._repr_html_()}
    cell.outputs = [new_output("execute_result", data=page, execution_count=None)]
    return cell


def _remarks(marks: Marks) -> NotebookNode:
    """What is said of the notebook as a whole, on top of it."""
    lines = "".join(f"<li>{prose(' '.join(line.split()))}</li>" for line in (*marks.remarks, *marks.report.notes))
    text = f"<p><strong>What was found when this notebook was marked</strong></p><ul>{lines}</ul>"
    cell: NotebookNode = new_markdown_cell(text)
    return cell


def _kept(original: NotebookNode | None) -> dict[str, Any]:
    """The metadata of a released cell: what the grader knows it by, and its lock."""
    return {} if original is None else dict(original.metadata)
