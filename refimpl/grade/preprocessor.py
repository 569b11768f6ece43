"""What `nbgrader autograde`, and the button of formgrader, do in place of running a notebook in nbgrader's own kernel.

`nbgrader_config.py` names it, so that a submission has the same marks whichever way it is graded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor

from refimpl.grade import Grading
from refimpl.grade.limits import Limits
from refimpl.grade.restore import marked
from refimpl.grade.submissions import read_submission


class MarkApart(NbGraderPreprocessor):  # type: ignore[misc]  # nbgrader has no types
    """Gives the submitted notebook its marks, and its check cells back; see `refimpl.grade`."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """The marked notebook in place of `nb`, the submitted one; nbgrader's `resources` say whose it is."""
        names = resources["nbgrader"]
        course = CourseDirectory(config=self.config)
        folder = course.format_path(course.submitted_directory, names["student"], names["assignment"])
        grading = Grading(Path(course.root), Limits(), uses_gradebook=False)
        known = {name[:2]: name for name in grading.assignments}
        path = Path(folder) / f"{names['notebook']}.ipynb"
        submission = read_submission(path, names["student"], names["assignment"][:2], known, grading.limits)
        released = Path(course.root) / course.release_directory / submission.assignment / submission.file
        return marked(submission.notebook, released, grading.marks_of(submission)), resources
