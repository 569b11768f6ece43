"""What nbgrader needs to know about this course; read by every `nbgrader` command, by its menus in JupyterLab, and by
`python -m refimpl grade` and `release`.

`solutions/` holds the source notebooks and `exercises/` what learners get; ids and points are those of
`refimpl.checks`. A submission is marked in a process of its own and not in nbgrader's kernel: whatever a learner did to
check cells, the checks are those of refimpl.
"""

import warnings

c = get_config()  # noqa: F821  (nbgrader defines it)

# SQLAlchemy's words about how nbgrader uses it, three lines a submission.
warnings.filterwarnings("ignore", message="Object of type <Submitted.* not in session")

c.CourseDirectory.course_id = "kv-cache-block-manager"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"

c.Autograde.sanitize_preprocessors = []
c.Autograde.autograde_preprocessors = [
    "refimpl.grade.preprocessor.MarkApart",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]

# For `nbgrader validate`, and for whoever takes the lines above out and grades in nbgrader's kernel.
c.OverwriteCells.add_missing_cells = True  # or a deleted check cell waits for manual grading for ever
c.Execute.timeout = 60  # seconds for one cell; a check stops an endless loop by itself after 10
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = r"(?s).*"  # a warning on stderr is no wrong answer
