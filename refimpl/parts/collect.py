"""From a folder of saved notebooks to parts: what passes its checks is the learner's, the rest is refimpl's.

The table says for each part whose it is, with the points, the file and the time it was saved; and why, where it is not
the learner's. Saved outputs are not believed: cells are run and checked afresh, in modules of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from refimpl.block_manager import BlockSpaceManager
from refimpl.checks import CheckResult
from refimpl.checks.engine import examine
from refimpl.checks.step import Step
from refimpl.parts.parts import Parts, Row
from refimpl.work import Notebook, NoWork, chapter_steps, not_installed, notebooks

MANAGER, FUNCTIONS = "manager", "functions"  # fields of Parts that several rows share


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table: what a part is called, the steps that must pass, the field of Parts, the name it goes by."""

    part: str
    steps: tuple[str, ...]  # ids, or the beginnings of ids
    field: str
    name: str

    @property
    def chapter(self) -> str:
        """Its number."""
        return self.steps[0].partition("-")[0]


KINDS = (
    Kind("block", ("01-fields",), "block", "PhysicalTokenBlock"),
    Kind("distinct_blocks", ("01-identity",), FUNCTIONS, "distinct_blocks"),
    Kind("uncached allocator", ("03-allocate", "03-free"), "uncached_allocator", "UncachedBlockAllocator"),
    Kind("share_block_table", ("03-share",), FUNCTIONS, "share_block_table"),
    Kind("content keys", ("04-content-key",), "prefix_keys", "PrefixKeys"),
    Kind("evictor", ("04-evictor",), "evictor", "LRUEvictor"),
    Kind("cached allocator", ("04-allocate", "04-free"), "cached_allocator", "CachedBlockAllocator"),
    Kind("manager: computed", ("04-computed",), MANAGER, "BlockSpaceManager"),
    Kind("num_watermark_blocks", ("05-watermark",), FUNCTIONS, "num_watermark_blocks"),
    Kind("manager: admission", ("05-can-allocate", "05-allocate"), MANAGER, "BlockSpaceManager"),
    Kind("manager: growth", ("06-",), MANAGER, "BlockSpaceManager"),
    Kind("manager: swap", ("07-",), MANAGER, "BlockSpaceManager"),
    Kind("scheduler", ("08-",), "scheduler", "Scheduler"),
    Kind("slot mapping", ("09-slot-mapping",), "slot_mapping", "slot_mapping"),
    Kind("write", ("09-write",), "write", "reshape_and_cache"),
    Kind("copy", ("09-copy",), "copy", "copy_blocks"),
    Kind("swap", ("09-swap",), "swap", "swap_blocks"),
    Kind("attention", ("10-gather", "10-gqa", "10-merge"), "attention", "paged_attention"),
)


def collect(folder: Path | str = "my_work", *, show: bool = True) -> Parts:
    """The learner's parts in a folder of exercise notebooks, refimpl's for what does not pass its check.

    Takes about 20 seconds when everything is there, because everything is checked.

    Args:
        folder: of notebooks, in subfolders or not; one that is missing or empty gives refimpl's parts alone.
        show: print the table.
    """
    try:
        found = notebooks(folder)
    except NoWork:
        found = {}
    each = [_row(kind, found, folder) for kind in KINDS]
    subjects = [subject for _, subject in each]
    rows, manager = _joined_manager([row for row, _ in each], subjects)
    given: dict[str, Any] = {MANAGER: manager, FUNCTIONS: {}}
    for kind, row, subject in zip(KINDS, rows, subjects, strict=True):
        if row.is_yours and kind.field == FUNCTIONS:
            given[FUNCTIONS][kind.name] = subject
        elif row.is_yours and kind.field != MANAGER:
            given[kind.field] = subject
    parts = Parts(**given, rows=tuple(rows))
    if show:
        print(parts.table())
    return parts


def _row(kind: Kind, found: dict[str, Notebook], folder: Path | str) -> tuple[Row, Any]:
    """What the table says of a part before parts are joined, and the learner's class or function where it passes."""
    try:
        wanted = _steps(kind)
    except ModuleNotFoundError as error:
        return Row(kind.part, False, 0.0, 0, "", not_installed(str(error.name))), None
    row = Row(kind.part, False, 0.0, sum(step.points for step in wanted), "", "")
    notebook = found.get(kind.chapter)
    if notebook is None:
        return dataclasses.replace(row, why=f"no notebook of chapter {kind.chapter} in {folder}"), None
    results = [notebook.result(step) for step in wanted]
    earned, where = sum(result.points for result in results), f"{notebook.path.name}, {notebook.saved:%Y-%m-%d %H:%M}"
    row = dataclasses.replace(row, points=earned, where=where)
    failed, subject = _first_failed(results), notebook.names.get(kind.name)
    if failed is not None:
        return dataclasses.replace(row, why=f"{failed.exercise_id} is {failed.outcome}"), None
    if subject is None:
        return dataclasses.replace(row, why=f"the notebook defines no {kind.name}"), None
    return dataclasses.replace(row, is_yours=True), subject


def _steps(kind: Kind) -> list[Step]:
    return [step for step in chapter_steps(kind.chapter) if step.exercise_id.startswith(kind.steps)]


def _first_failed(results: Iterable[CheckResult]) -> CheckResult | None:
    return next((result for result in results if not result.passed), None)


def _joined_manager(rows: list[Row], subjects: Sequence[Any]) -> tuple[list[Row], type | None]:
    """One manager out of the chapters' classes, and the rows as they are then.

    Each chapter's class replaces some methods of refimpl's manager, so that one class can inherit from all of them; a
    helper of one may come in another's way, so the whole is checked again. A class that is not built on refimpl's
    stands alone: it is the manager when it passes the steps of all chapters.
    """
    yours = [i for i, kind in enumerate(KINDS) if kind.field == MANAGER and rows[i].is_yours]
    for i in reversed(yours):
        if not issubclass(subjects[i], BlockSpaceManager) and _passes(subjects[i], _manager_steps()) is None:
            for j, kind in enumerate(KINDS):
                if kind.field == MANAGER:
                    rows[j] = dataclasses.replace(rows[i], part=kind.part)
            return rows, subjects[i]
    for i in yours:
        if not issubclass(subjects[i], BlockSpaceManager):
            why = "your class stands alone, and does not pass every step of chapters 4 to 7"
            rows[i] = dataclasses.replace(rows[i], is_yours=False, why=why)
    yours = [i for i in yours if rows[i].is_yours]
    if not yours:
        return rows, None
    classes = [subjects[i] for i in reversed(yours)]
    joined = (
        type("BlockSpaceManager", tuple(classes), {"__module__": classes[0].__module__})
        if len(classes) > 1
        else classes[0]
    )
    failed = _passes(joined, [step for i in yours for step in _steps(KINDS[i])]) if len(classes) > 1 else None
    if failed is None:
        return rows, joined
    for i in yours:
        why = f"it passes alone, and not with your other chapters' methods: {failed.exercise_id} is {failed.outcome}"
        rows[i] = dataclasses.replace(rows[i], is_yours=False, why=why)
    return rows, None


def _manager_steps() -> list[Step]:
    chapters = dict.fromkeys(kind.chapter for kind in KINDS if kind.field == MANAGER)
    return [step for number in chapters for step in chapter_steps(number) if step.subject == "BlockSpaceManager"]


def _passes(subject: Any, wanted: Iterable[Step]) -> CheckResult | None:
    """The first step that the class does not pass; None when it passes them all."""
    return _first_failed(examine(step, subject) for step in wanted)
