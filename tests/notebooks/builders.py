"""Small notebooks built in code, for the tests of everything that reads, runs, releases or judges notebooks.

Each builder returns a fresh notebook that obeys every rule of the course, so that a test spoils exactly one
thing.
"""

import textwrap

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from refimpl.notebooks import KERNELSPEC, LANGUAGE_INFO

COURSE = {
    "difficulty": "gentle",
    "minutes": {"Owners": 10},
    "objectives": ["Say when a block comes back."],
    "prerequisites": ["02_block_table"],
}

HINTS = """
<details>
<summary>Hint 1: the question to ask</summary>

Who still holds the block?

</details>

<details>
<summary>Hint 2: the approach</summary>

Count owners.

</details>

<details>
<summary>Hint 3: the steps in words</summary>

Refuse a block without owners, then take one owner away.

</details>
"""


def text(source: str) -> str:
    """Return `source` without the indentation and the blank lines that the test's layout gave it."""
    return textwrap.dedent(source).strip()


def markdown(source: str, cell_id: str) -> NotebookNode:
    """Return a markdown cell."""
    return new_markdown_cell(text(source), id=cell_id)


def code(source: str, cell_id: str, *outputs: NotebookNode, tags: tuple[str, ...] = ()) -> NotebookNode:
    """Return a code cell with its stored outputs; `notebook` gives it its execution count."""
    metadata = {"tags": list(tags)} if tags else {}
    return new_code_cell(text(source), id=cell_id, outputs=list(outputs), metadata=metadata)


def printed(value: str, name: str = "stdout") -> NotebookNode:
    """Return the output of a cell that printed `value`."""
    return new_output("stream", name=name, text=value)


def shown(**data: str) -> NotebookNode:
    """Return a displayed output; keys are MIME types with `_` for `/`, such as `image_png`."""
    return new_output("display_data", data={key.replace("_", "/", 1): value for key, value in data.items()})


def notebook(*cells: NotebookNode) -> NotebookNode:
    """Return a notebook of `cells`, executed in order as far as metadata can say so."""
    count = 0
    for cell in cells:
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = count
    metadata = {"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO, "course": COURSE}
    nb = new_notebook(cells=list(cells), metadata=nbformat.from_dict(metadata))
    nb.nbformat_minor = 5
    return nb


def graded(cell: NotebookNode, grade_id: str, points: float | None = None) -> NotebookNode:
    """Return `cell` marked for nbgrader: a locked check worth `points`, or without points a solution cell."""
    is_check = points is not None
    cell.metadata["nbgrader"] = {
        "grade": is_check,
        "grade_id": grade_id,
        "locked": is_check,
        "schema_version": 3,
        "solution": not is_check,
        "task": False,
        **({"points": points} if is_check else {}),
    }
    return cell


def step(exercise_id: str = "03-free", points: float = 2.0, subject: str = "free") -> list[NotebookNode]:
    """Return the cells of one exercise step: task, solution, check, and the three hints."""
    solution = f"""
    def {subject}(owners):
        \"\"\"Return the owners that are left.\"\"\"
        ### BEGIN SOLUTION
        remaining_owners = owners - 1
        return remaining_owners
        ### END SOLUTION
    """
    return [
        markdown(
            f"## Give a block back\n\nWrite `{subject}(owners)`. Example: two owners leave one.",
            f"{exercise_id}-task",
        ),
        graded(code(solution, f"{exercise_id}-solution"), f"{exercise_id}-solution"),
        graded(
            code(
                f'check("{exercise_id}", {subject})',
                f"{exercise_id}-check",
                printed(f"{exercise_id}: passed"),
            ),
            exercise_id,
            points,
        ),
        new_markdown_cell(HINTS.strip(), id=f"{exercise_id}-hints"),
    ]


def solution_notebook() -> NotebookNode:
    """Return the smallest solution notebook that obeys every rule."""
    return notebook(
        markdown("# Exercise: give a block back\n\nTime: 10 minutes.", "title"),
        code("from refimpl.checks import check", "imports"),
        *step(),
    )


def lesson_notebook() -> NotebookNode:
    """Return the smallest lesson that obeys every rule."""
    return notebook(
        markdown("# A free list\n\nTime: 10 minutes.", "title"),
        markdown("## What you are not building here\n\nNo eviction.", "not-building"),
        markdown("## Owners\n\n**Predict, then run:** how many blocks come back?", "owners"),
        code("owners = 2\nprint(owners - 1)", "count", printed("1\n")),
        markdown("## In vLLM\n\n`vllm/core/block_manager_v1.py` at v0.5.4.", "in-vllm"),
        markdown("## Pitfalls from the field\n\nA block freed twice.", "pitfalls"),
    )
