"""The picture of README.md: a lesson beside its exercise in JupyterLab, where a wrong answer has been typed in.

Not collected with the tests: `python -m pytest tests/browser/readme_picture.py` takes the picture anew. That what is
seen in it is still so is for `tests/test_readme.py`.
"""

from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

from driver import OpenNotebook
from PIL import Image
from test_jupyterlab import EXERCISE, FORGETS_THE_OTHER_OWNERS, ROOT, STUB, answer, course

__all__ = ["course"]  # the fixture: a copy of the notebooks

LESSON = "notebooks/03_uncached_allocator.ipynb"
PICTURE = ROOT / "notebooks/images/lesson_and_exercise.png"
WIDTH, HEIGHT = 1160, 652
COLOURS = 128

BESIDE = """async path => {
    const {shell, commands} = window.jupyterapp;
    const options = {mode: 'split-left', ref: shell.currentWidget.id};
    await commands.execute('docmanager:open', {path, options});
}"""
PANEL = "() => window.jupyterapp.shell.currentWidget.id"
MORE_ROOM = """async () => {
    const {shell, commands} = window.jupyterapp;
    shell.collapseLeft();
    await commands.execute('application:toggle-side-tabbar', {side: 'left'});
    await commands.execute('application:toggle-side-tabbar', {side: 'right'});
    await commands.execute('statusbar:toggle');
}"""
TO_THE_TOP = "cell => cell.scrollIntoView({block: 'start'})"


def test_take_the_picture(page: Any, course: Path) -> None:
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    page.evaluate(MORE_ROOM)
    exercise = opened(page, course, EXERCISE)
    exercise.run_all()
    exercise.type_instead_of(STUB, answer("03-allocate-answer"), "03-allocate-answer")
    exercise.type_instead_of(STUB, FORGETS_THE_OTHER_OWNERS, "03-free-answer")
    exercise.run("03-free-check")
    exercise.check("03-free", "misconception")

    page.evaluate(BESIDE, LESSON)
    lesson = opened(page, course, LESSON)
    lesson.run_all()
    lesson.cell("share").evaluate(TO_THE_TOP)
    exercise.cell("03-free-answer").evaluate(TO_THE_TOP)
    save(page)


def opened(page: Any, course: Path, path: str) -> OpenNotebook:
    """The notebook, found by its own panel, because two are in sight."""
    notebook = OpenNotebook(page, course, path)
    notebook.panel = page.locator(f"#{page.evaluate(PANEL)}")
    return notebook


def save(page: Any) -> None:
    """The page at two pixels a point, in few colours: GitHub shows it at less than its own width."""
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 2}
    shot = page.context.new_cdp_session(page).send("Page.captureScreenshot", {"format": "png", "clip": clip})
    PICTURE.parent.mkdir(exist_ok=True)
    image = Image.open(BytesIO(b64decode(shot["data"]))).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
