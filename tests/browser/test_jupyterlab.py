"""A learner's first hour in a real JupyterLab: a Chromium opens the notebooks, runs them, types and is told.

Needs a Chromium or Chrome on the PATH and skips without one. With SCREENSHOTS=folder in the environment, each
panel is saved there in the light and in the dark theme for people to look at.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refimpl import notebooks

playwright_api = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright")

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium, chromium-browser, google-chrome or chrome on the PATH"
)

EXERCISE = "exercises/03_uncached_allocator/03_uncached_allocator.ipynb"
SOLUTION = "solutions/03_uncached_allocator/03_uncached_allocator.ipynb"
START = "notebooks/00_start_here.ipynb"
STUB = "    # YOUR CODE HERE\n    raise NotImplementedError()"
FORGETS_THE_OTHER_OWNERS = """    if block.ref_count == 0:
        raise ValueError("this block has no owner")
    block.ref_count -= 1
    self.free_blocks.append(block)"""

CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SETTINGS = {  # file below JupyterLab's settings folder -> what a test must be able to rely on
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/themes": {"theme": "JupyterLab Light", "adaptive-theme": False},
}
STARTED = 90  # seconds for JupyterLab to answer and to show a notebook
RAN = 60_000  # milliseconds for all cells of a notebook


OPEN = "async path => { await window.jupyterapp.commands.execute('docmanager:open', {path}); }"
RUN_ALL = "async () => { await window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
CHANGE_THEME = "async theme => { await window.jupyterapp.commands.execute('apputils:change-theme', {theme}); }"
IS_OPEN_AND_IDLE = """path => {
    const panel = window.jupyterapp.shell.currentWidget;
    return panel?.context?.path === path && panel.context.isReady && panel.sessionContext.isReady
        && panel.sessionContext.session?.kernel?.status === 'idle';
}"""
IS_DONE = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const waiting = panel.node.querySelectorAll('.jp-Notebook .jp-InputPrompt');
    return panel.sessionContext.session.kernel.status === 'idle'
        && ![...waiting].some(prompt => prompt.textContent.includes('*'));
}"""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, for a browser saves what it runs; the lesson has no outputs, so that only a run shows any."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("notebooks", "exercises"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".*"))
    nb = notebooks.read(folder / START)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    notebooks.write(nb, folder / START)
    return folder


@pytest.fixture(scope="module")
def lab(course: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A JupyterLab that serves the course on a free port with a home of its own; the value is its address."""
    home = tmp_path_factory.mktemp("jupyter")
    for name, content in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    own = {
        "IPYTHONDIR": "ipython",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    }
    environment = {**os.environ, **{name: str(home / folder) for name, folder in own.items()}}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    command += ["--expose-app-in-browser", "--ip=127.0.0.1", f"--ServerApp.root_dir={course}"]
    log = home / "lab.log"
    with log.open("w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment, cwd=course)
    try:
        yield address(server, log)
    finally:
        server.terminate()
        try:
            server.wait(timeout=15)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def address(server: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server has printed where it is to be found, and return that address, token included."""
    deadline = time.monotonic() + STARTED
    while time.monotonic() < deadline and server.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", log.read_text())
        if found:
            return found.group()
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start within {STARTED} s:\n{log.read_text()}")


@pytest.fixture(scope="module")
def page(lab: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page of a fresh browser in which JupyterLab has come up."""
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("browser"),
            executable_path=CHROMIUM,
            headless=True,
            args=CHROMIUM_OPTIONS,
            viewport={"width": 1280, "height": 900},
        )
        page = browser.pages[0]
        page.goto(lab)
        page.wait_for_function("window.jupyterapp !== undefined", timeout=STARTED * 1000)
        page.evaluate("window.jupyterapp.restored")
        yield page
        browser.close()


class OpenNotebook:
    """Owns one notebook opened in JupyterLab; finds cells by their ids, which people see as their places."""

    def __init__(self, page: Any, course: Path, path: str) -> None:
        self.page = page
        self.ids = [cell.id for cell in notebooks.read(course / path).cells]
        page.evaluate(OPEN, path)
        page.wait_for_function(
            IS_OPEN_AND_IDLE,
            arg=path,
            timeout=STARTED * 1000,
        )
        self.panel = page.locator(".jp-NotebookPanel:visible")

    def cell(self, cell_id: str) -> Any:
        """Return the cell of that id."""
        return self.panel.locator(".jp-Notebook .jp-Cell").nth(self.ids.index(cell_id))

    def run_all(self) -> None:
        """Run every cell, and wait until the kernel is idle again."""
        self.page.evaluate(RUN_ALL)
        self.wait_until_idle()

    def run(self, cell_id: str) -> None:
        """Run one cell as a learner does, with the keyboard."""
        self.cell(cell_id).locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        self.wait_until_idle()

    def type_instead_of(self, old: str, new: str, cell_id: str) -> None:
        """Replace the text of a cell by the one in which `new` stands for `old`, and run it."""
        editor = self.cell(cell_id).locator(".cm-content")
        before = self.source(cell_id)
        assert old in before
        editor.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(before.replace(old, new))
        assert self.source(cell_id) == before.replace(old, new)
        self.run(cell_id)

    def source(self, cell_id: str) -> str:
        """Return what stands in the cell now."""
        script = "place => window.jupyterapp.shell.currentWidget.content.widgets[place].model.sharedModel.source"
        return str(self.page.evaluate(script, self.ids.index(cell_id)))

    def wait_until_idle(self) -> None:
        """Wait until every cell that was sent to the kernel has its answer."""
        self.page.wait_for_function(
            IS_DONE,
            timeout=RAN,
        )

    def check(self, exercise_id: str, outcome: str) -> Any:
        """Return the panel of a check, once it shows this outcome."""
        panel = self.panel.locator(f'.refimpl-check[data-exercise="{exercise_id}"][data-outcome="{outcome}"]').last
        playwright_api.expect(panel).to_be_visible(timeout=RAN)
        return panel


def photograph(page: Any, panel: Any, name: str) -> None:
    """Save the page around `panel` in both themes, where somebody asked for it."""
    folder = os.environ.get("SCREENSHOTS")
    if not folder:
        return
    for theme in ("Dark", "Light"):  # light last: it is the theme in which the test goes on
        page.evaluate(CHANGE_THEME, f"JupyterLab {theme}")
        page.wait_for_selector(f"body[data-jp-theme-name='JupyterLab {theme}']", state="attached")
        panel.scroll_into_view_if_needed()
        page.screenshot(path=Path(folder) / f"{name}-{theme.lower()}.png", animations="disabled")


def test_the_first_check_a_learner_meets_turns_green(page: Any, course: Path) -> None:
    start = OpenNotebook(page, course, START)
    start.run_all()
    panel = start.check("00-first-check", "passed")
    assert "Passed" in panel.inner_text()
    photograph(page, panel, "00-passed")


def test_the_exercise_says_not_attempted_then_what_is_wrong_then_passed(page: Any, course: Path) -> None:
    exercise = OpenNotebook(page, course, EXERCISE)
    exercise.run_all()
    for exercise_id in ("03-allocate", "03-free", "03-share"):
        exercise.check(exercise_id, "not attempted")

    exercise.type_instead_of(STUB, answer("03-allocate-answer"), "03-allocate-answer")
    exercise.run("03-allocate-check")
    exercise.check("03-allocate", "passed")

    exercise.type_instead_of(STUB, FORGETS_THE_OTHER_OWNERS, "03-free-answer")
    exercise.run("03-free-check")
    wrong = exercise.check("03-free", "misconception")
    assert "last owner" in wrong.inner_text()
    photograph(page, wrong, "03-misconception")

    exercise.type_instead_of(FORGETS_THE_OTHER_OWNERS, answer("03-free-answer"), "03-free-answer")
    exercise.run("03-free-check")
    right = exercise.check("03-free", "passed")
    assert "4 of 4 points" in right.inner_text()
    photograph(page, right, "03-passed")


def test_nobody_can_type_into_a_check(page: Any, course: Path) -> None:
    exercise = OpenNotebook(page, course, EXERCISE)
    before = exercise.source("03-free-check")
    exercise.cell("03-free-check").locator(".cm-content").click()
    page.keyboard.insert_text("print('mine') #")
    assert exercise.source("03-free-check") == before


def answer(cell_id: str) -> str:
    """Return the solution region of a cell, as a learner who got it right would have typed it."""
    cell = next(cell for cell in notebooks.read(ROOT / SOLUTION).cells if cell.id == cell_id)
    region = re.search(r"### BEGIN SOLUTION\n(.*)\n\s*### END SOLUTION", cell.source, re.DOTALL)
    assert region
    return region[1]
