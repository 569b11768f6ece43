"""Notebook files as this project keeps them: read, run from a clean kernel, written in one canonical form.

Owns every byte of a committed notebook that is not its author's text. Always holds: running the same notebook
twice writes the same file (no timings, no Python patch version, no ids of dead widgets), and a notebook that
fails is left as it was. Sits on top of the package beside `release`; nothing in the core knows that notebooks
exist.
"""

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

CELL_TIMEOUT = 60  # seconds; nbval runs with the same limit
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE_INFO = {
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "pygments_lexer": "ipython3",
}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KEPT_CELL_METADATA = ("deletable", "editable", "jupyter", "nbgrader", "slideshow", "tags")


class NotebookError(Exception):
    """A notebook could not be read or run; the text is one sentence that names the file and the cell."""


def read(path: Path) -> NotebookNode:
    """Return the notebook at `path`, in format 4.

    Raises `NotebookError` when there is no such file or it is not a notebook.
    """
    try:
        nb: NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise NotebookError(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # nbformat raises a different type for each way a file can be broken
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NotebookError(f"{path} is not a Jupyter notebook: {reason}") from error
    return nb


def canonical(nb: NotebookNode) -> NotebookNode:
    """Return a copy of `nb` without what differs from one machine or run to the next.

    The kernel is `python3`, the language has no version, cells keep only metadata that means something, and
    outputs lose the view of a widget: it points at a model that died with its kernel, where JupyterLab would
    show an error.

    Example:
        >>> nb = nbformat.v4.new_notebook(metadata={"language_info": {"name": "python", "version": "3.11.9"}})
        >>> canonical(nb).metadata.language_info
        {'file_extension': '.py', 'mimetype': 'text/x-python', 'name': 'python', 'pygments_lexer': 'ipython3'}
    """
    course = {"course": nb.metadata.course} if "course" in nb.metadata else {}
    cells = [_canonical_cell(cell) for cell in nb.cells]
    metadata = {**course, "kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    kept: NotebookNode = nbformat.from_dict(content)  # type: ignore[no-untyped-call]
    return kept


def _canonical_cell(cell: NotebookNode) -> dict[str, Any]:
    kept = {
        **cell,
        "metadata": {key: cell.metadata[key] for key in KEPT_CELL_METADATA if key in cell.metadata},
    }
    if cell.cell_type == "code":
        kept["outputs"] = [_canonical_output(output) for output in cell.outputs]
    return kept


def _canonical_output(output: NotebookNode) -> dict[str, Any]:
    if "data" not in output:
        return dict(output)
    return {**output, "data": {kind: value for kind, value in output.data.items() if kind != WIDGET_VIEW}}


def dumps(nb: NotebookNode) -> str:
    """Return the text of `nb` in canonical form: keys sorted, one space of indent, a newline at the end."""
    text = str(nbformat.writes(canonical(nb), version=4))  # type: ignore[no-untyped-call]
    return text.rstrip("\n") + "\n"


def write(nb: NotebookNode, path: Path) -> None:
    """Write `nb` in canonical form at `path`, whole or not at all."""
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(dumps(nb))
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def run(nb: NotebookNode, folder: Path, name: str = "notebook", timeout: float = CELL_TIMEOUT) -> NotebookNode:
    """Return a copy of `nb` executed from a clean kernel that works in `folder`; execution counts are 1..n.

    `timeout` is the limit in seconds for one cell. Raises `NotebookError`, naming `name` and the cell, when a
    cell raises (unless it is tagged `raises-exception`), takes too long, or takes the kernel down.
    """
    executed = canonical(nb)
    current = 0

    def remember(cell: NotebookNode, cell_index: int) -> None:
        nonlocal current
        current = cell_index

    client = NotebookClient(
        executed,
        timeout=timeout,
        kernel_name=KERNELSPEC["name"],
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],  # what the kernel itself warns of is not about the notebook
        on_cell_start=remember,
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise NotebookError(f"{name}: {_named(executed, current)} raised {error.ename}: {error.evalue}") from error
    except CellTimeoutError as error:
        raise NotebookError(f"{name}: {_named(executed, current)} did not end within {timeout} s.") from error
    except DeadKernelError as error:
        raise NotebookError(f"{name}: the kernel died in {_named(executed, current)}.") from error
    return canonical(executed)


def _named(nb: NotebookNode, index: int) -> str:
    """Name a cell for a reader: its position among all cells, its id, and its first line."""
    cell = nb.cells[index]
    first_line = cell.source.strip().splitlines()[0] if cell.source.strip() else "(empty)"
    return f"cell {index} (id {cell.get('id', 'none')}, `{first_line}`)"


def execute(paths: Iterable[Path], timeout: float = CELL_TIMEOUT) -> int:
    """Run the notebooks at `paths`, each in its own folder, and store what they showed; stops at the first that fails.

    `timeout` is the most seconds that a cell may take.

    For the command line: prints a line a notebook and returns 0 when all ran, 1 when a cell failed (that
    notebook and those after it are untouched) and 2 when one of the files does not exist (all are untouched).
    """
    paths = list(paths)
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        print(f"There is no file {', '.join(missing)}.", file=sys.stderr)
        return 2
    for path in paths:
        try:
            write(run(read(path), path.resolve().parent, str(path), timeout), path)
        except NotebookError as error:
            print(error, file=sys.stderr)
            return 1
        print(f"{path}: executed")
    return 0
