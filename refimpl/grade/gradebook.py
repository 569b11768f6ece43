"""nbgrader's side of marking: assignments made known, marks entered, by nbgrader's own converters and API.

Owns nothing of nbgrader's files but the order in which they come: `submitted/` gets what was handed in, `autograded/`
what was marked, and `gradebook.db` the points, so that formgrader, feedback and export go on from there.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import AssignLatePenalties, CheckCellMetadata, SaveAutoGrades
from sqlalchemy.exc import SQLAlchemyError

from refimpl.checks.catalogue import chapter_steps
from refimpl.grade.marks import CannotEnter, Marks
from refimpl.grade.restore import digest_of, marked
from refimpl.grade.submissions import Submission
from refimpl.release import RELEASE, SOURCE, nbgrader_config

REFUSALS = (NbGraderException, MissingEntry, SQLAlchemyError, OSError)  # the last two: somebody else uses the gradebook
_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())
_log.propagate = False


class _Marked(Autograde):  # type: ignore[misc]  # nbgrader has no types
    """nbgrader's autograder, which is given the marked notebook instead of running the submitted one."""

    marked: Callable[[], Any]

    def convert_single_notebook(self, notebook_filename: str) -> None:
        """Enter one notebook."""
        resources = self.init_single_notebook_resources(notebook_filename)
        self._sanitizing = False
        self._init_preprocessors()
        output, resources = self.exporter.from_notebook_node(self.marked(), resources)
        self.write_single_notebook(output, resources)


class Course:
    """A folder with `solutions/`, `exercises/` and nbgrader's own.

    Args:
        root: of the course.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.config = nbgrader_config(self.root)
        self.config.CourseDirectory.root = str(self.root)
        self._graded: dict[str, set[str]] = {}  # assignment -> the students that the gradebook has marks of
        programs = str(Path(sys.executable).parent)  # nbgrader starts one of them, by its name
        os.environ["PATH"] = os.pathsep.join(dict.fromkeys([programs, *os.environ.get("PATH", "").split(os.pathsep)]))

    def make_known(self, assignments: list[str]) -> None:
        """Enter the assignments that the gradebook does not know yet, or knows with other points.

        Raises:
            CannotEnter: when nbgrader refuses one.
        """
        for name in assignments:
            if self._points(name) != {step.exercise_id: float(step.points) for step in self._steps(name)}:
                with tempfile.TemporaryDirectory(prefix="refimpl-assignment-") as elsewhere:
                    config = copy.deepcopy(self.config)
                    config.CourseDirectory.root = elsewhere
                    shutil.copytree(self.root / SOURCE / name, Path(elsewhere) / SOURCE / name)
                    config.CourseDirectory.db_url = self._directory().db_url
                    course = CourseDirectory(config=config, log=_log, assignment_id=name)
                    self._do(GenerateAssignment(coursedir=course, config=config, log=_log), name)
            with self._gradebook() as gradebook:
                self._graded[name] = {each.student.id for each in gradebook.assignment_submissions(name)}

    def enter(self, submission: Submission, marks: Marks) -> bool:
        """Enter the marks of a submission; what a person has graded by hand stays.

        Returns:
            bool: False when these marks are there already.

        Raises:
            CannotEnter: when nbgrader refuses.
        """
        student, assignment = submission.student, submission.assignment
        file = submission.file
        is_there = digest_of(self.root / "autograded" / student / assignment / file) == marks.digest
        if is_there and student in self._graded[assignment]:
            return False
        submitted = self.root / "submitted" / student / assignment / file
        if not (submitted.exists() and submitted.samefile(submission.path)):
            submitted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(submission.path, submitted)
            when = submission.path.with_name("timestamp.txt")  # from which nbgrader tells what was late
            if when.is_file():
                shutil.copyfile(when, submitted.with_name(when.name))
        course = self._directory(assignment_id=assignment, student_id=student, notebook_id=assignment)
        autograde = _Marked(coursedir=course, config=self.config, log=_log)
        autograde.autograde_preprocessors = [SaveAutoGrades, AssignLatePenalties, CheckCellMetadata]
        autograde.marked = lambda: marked(submission.notebook, self.root / RELEASE / assignment / file, marks)
        autograde.force = True
        self._do(autograde, submission.name)
        self._graded[assignment].add(student)
        return True

    def _steps(self, assignment: str) -> list[Any]:
        return list(chapter_steps(assignment[:2]).values())

    def _points(self, assignment: str) -> dict[str, float]:
        """Exercise id -> points, as the gradebook has them."""
        with self._gradebook() as gradebook:
            try:
                notebooks = gradebook.find_assignment(assignment).notebooks
            except MissingEntry:
                return {}
            return {cell.name: cell.max_score for notebook in notebooks for cell in notebook.grade_cells}

    @contextlib.contextmanager
    def _gradebook(self) -> Iterator[Any]:
        try:
            with Gradebook(self._directory().db_url) as gradebook:
                yield gradebook
        except REFUSALS as error:
            raise CannotEnter(f"the gradebook cannot be read: {type(error).__name__}: {error}") from error

    def _directory(self, **names: str) -> Any:
        return CourseDirectory(config=self.config, log=_log, **names)

    def _do(self, converter: Any, name: str) -> None:
        here = os.getcwd()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # SQLAlchemy's, about how nbgrader uses it
                converter.start()
        except REFUSALS as error:
            raise CannotEnter(f"{name}: nbgrader did not take it: {type(error).__name__}: {error}") from error
        finally:
            os.chdir(here)
