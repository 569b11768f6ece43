"""The clean run: every cell in order, each step checked where its check stands, and what went wrong in words.

A step is judged as if all others were harmless: what takes the kernel down, or cannot be stopped in it, costs its own
cell or step, and the rest is run again in a new kernel without it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from refimpl.check_notebook.document import Document, defines, is_answer, upper
from refimpl.check_notebook.kernel import Error, Kernel, KernelDied, clean_kernel
from refimpl.check_notebook.report import Report, StepReport, nothing_found
from refimpl.checks import CheckResult
from refimpl.checks.engine import TIME_LIMIT
from refimpl.checks.step import Step
from refimpl.work import not_installed

RUN_AGAIN = 5.0  # seconds for a cell that has run out of time before


class _NewKernel(Exception):
    """The kernel is gone, or busy for ever; the run begins again, and what is known stays known."""


class CleanRun:
    """One notebook, from its first cell to its last.

    Args:
        document: the notebook.
        timeout: seconds for one cell.
        check_timeout: seconds for one check.
        kernel: makes a kernel that works in a folder.
        tell: is given each check's result as soon as it is known.
    """

    def __init__(
        self,
        document: Document,
        timeout: float,
        check_timeout: float = TIME_LIMIT,
        kernel: Callable[[Path, str], AbstractContextManager[Kernel]] = clean_kernel,
        tell: Callable[[CheckResult], None] = lambda result: None,
    ) -> None:
        self.document, self.timeout, self.check_timeout = document, timeout, check_timeout
        self.kernel, self.tell = kernel, tell
        self.places = {step.exercise_id: document.place(step) for step in document.steps}
        self.results: dict[str, CheckResult] = {}
        self.faults: list[str] = list(document.copies())
        self.failed: dict[int, str] = {}  # cell -> what it did
        self.suspected: set[int | str] = set()  # cells and steps at which a kernel was lost once
        self.fatal: set[int] = set()  # cells that took a kernel down, and are not run again
        self.has_run: set[int] = set()  # cells of which everything has been told
        self.has_raised = False  # and the first such fault is told; those that follow may come of it

    def report(self) -> Report:
        """Run everything, and say what was found.

        Raises:
            CannotRun: when no kernel can be had, or it cannot check.
        """
        document = self.document
        while not self._is_complete():
            try:
                with self.kernel(document.path.resolve().parent, document.number) as kernel:
                    self._run(kernel)
            except _NewKernel:
                continue
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

    def _is_complete(self) -> bool:
        return len(self.results) == len(self.document.steps) and self.has_run.issuperset(self._cells())

    def _cells(self) -> list[int]:
        """The cells to run: code, and no check, nor one that somebody wrote again without its mark."""
        checks = {place.cell for place in self.places.values()}
        return [i for i, cell in enumerate(self.document.cells) if cell.is_run and i not in checks]

    def _run(self, kernel: Kernel) -> None:
        cells = set(self._cells())
        for index in range(len(self.document.cells)):
            if index in cells and index not in self.fatal:
                self._run_cell(kernel, index)
            self._check_below(kernel, index)
        self._check_below(kernel, None)

    def _run_cell(self, kernel: Kernel, index: int) -> None:
        name, is_new = upper(self.document.name(index)), index not in self.has_run
        self.has_run.add(index)
        limit = self.timeout if is_new or index not in self.failed else min(self.timeout, RUN_AGAIN)
        try:
            error = kernel.run(self.document.cells[index].source, limit)
        except TimeoutError:
            if is_new:
                self.failed[index] = f"had not ended after {limit:g} seconds"
                loop = "look for a loop that never ends."
                self.faults.append(f"{name} had not ended after {limit:g} seconds and was stopped: {loop}")
            return
        except KernelDied as death:
            if not self._is_certain(death, index):
                self.has_run.discard(index)
                raise _NewKernel from death
            self.fatal.add(index)
            self.failed[index] = str(death)
            self.faults.append(f"{name} {death}; the rest was run without it.")
            raise _NewKernel from death
        if error is not None and is_new:
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
            name = upper(self.document.name(index))
            self.faults.append(f"{name} raised {error.text}{_at(error)}. {self._advice(error)}")

    def _advice(self, error: Error) -> str:
        if error.kind == "ModuleNotFoundError":
            return not_installed(str(error.name))
        if error.kind == "NameError" and not any(error.name in defines(cell.source) for cell in self.document.cells):
            return f"No cell defines `{error.name}` any more: it was in one that is gone, or has another name now."
        if error.kind == "StdinNotImplementedError":
            return "Nobody answers `input()` when a notebook is graded: write the value into the cell."
        return "Mend it or delete it."

    def _check_below(self, kernel: Kernel, index: int | None) -> None:
        for step in self.document.steps:
            if self.places[step.exercise_id].below == index and step.exercise_id not in self.results:
                self._check(kernel, step)

    def _check(self, kernel: Kernel, step: Step) -> None:
        try:
            examined = kernel.examine(step, self.check_timeout)
        except KernelDied as death:
            if not self._is_certain(death, step.exercise_id):
                raise _NewKernel from death
            self._found(nothing_found(step, "raised", f"During the check your code {death}."))
            raise _NewKernel from death
        self._found(examined.result or nothing_found(step, "not attempted", f"No cell above defines `{step.subject}`."))
        for name in examined.put_back:
            self.faults.append(f"The notebook had replaced `{name}`; it was put back before {step.exercise_id}.")
        if examined.still_runs:
            raise _NewKernel

    def _is_certain(self, death: KernelDied, place: int | str) -> bool:
        """Whether a cell or check ended the kernel, and not the machine: it did so before, or nobody else can have."""
        certain = death.is_sure or place in self.suspected
        self.suspected.add(place)
        return certain

    def _found(self, result: CheckResult) -> None:
        self.results[result.exercise_id] = result
        self.tell(result)

    def _said(self, step: Step) -> CheckResult:
        """The check's result; where an answer did not run, that, for it is what the learner must know first."""
        result = self.results[step.exercise_id]
        if result.passed:
            return result
        for index, what in self.failed.items():
            if any(is_answer(step, name, self.document.cells[index]) for name in step.asks_for):
                return nothing_found(step, "raised", f"{upper(self.document.name(index))}, your answer, {what}.")
        unknown = re.search(r"NameError: name '(\w+)' is not defined", result.message)
        order = unknown and self.document.out_of_order(self.places[step.exercise_id].cell, unknown[1])
        return dataclasses.replace(result, message=f"{result.message} {order}") if order else result


def _at(error: Error) -> str:
    return f", at its line `{error.line}`" if error.line else ""
