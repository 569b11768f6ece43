"""The clean run: every cell in order, each step checked where its check stands, and what went wrong in words."""

from __future__ import annotations

import dataclasses
import json
import re

from refimpl.check_notebook.document import Document, defines, is_answer, upper
from refimpl.check_notebook.kernel import Error, Kernel, KernelDied, clean_kernel, examined
from refimpl.check_notebook.report import Report, StepReport, nothing_found
from refimpl.checks import CheckResult
from refimpl.checks.step import Step
from refimpl.work import not_installed


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
        name = upper(self.document.name(index))
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

    def _check(self, kernel: Kernel, step: Step) -> None:
        try:
            found = json.loads(kernel.ask(examined, step.exercise_id))
        except KernelDied as death:
            self.end = f"The check of {step.exercise_id} {death}; what follows was not run."
            return
        if found is not None:
            self.results[step.exercise_id] = CheckResult(**{**found, "trace": tuple(found["trace"])})
        else:
            self.results[step.exercise_id] = nothing_found(
                step, "not attempted", f"No cell above defines `{step.subject}`."
            )

    def _said(self, step: Step) -> CheckResult:
        """The check's result; where an answer did not run, that, for it is what the learner must know first."""
        result = self.results.get(step.exercise_id)
        if result is not None and result.passed:
            return result
        for index, what in self.failed.items():
            if any(is_answer(step, name, self.document.cells[index]) for name in step.asks_for):
                return nothing_found(step, "raised", f"{upper(self.document.name(index))}, your answer, {what}.")
        if result is None:
            return nothing_found(step, "raised", "It was not checked: the kernel had gone before.")
        unknown = re.search(r"NameError: name '(\w+)' is not defined", result.message)
        order = unknown and self.document.out_of_order(self.places[step.exercise_id].index, unknown[1])
        return dataclasses.replace(result, message=f"{result.message} {order}") if order else result


def _at(error: Error) -> str:
    return f", at its line `{error.line}`" if error.line else ""
