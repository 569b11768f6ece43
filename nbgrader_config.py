"""What nbgrader needs to know about this course; read by `nbgrader` and by `python -m refimpl release`.

`solutions/` holds the source notebooks and `exercises/` what learners get. Grading restores what a learner
broke: a deleted check cell comes back, and one endless loop costs one cell, not the class.
"""

c = get_config()  # noqa: F821  (nbgrader defines it)

c.CourseDirectory.course_id = "kv-cache-block-manager"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"

c.OverwriteCells.add_missing_cells = True

c.Execute.timeout = 60  # seconds for one cell; a check stops an endless loop by itself after 10
