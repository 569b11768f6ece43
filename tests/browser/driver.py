"""Drives one notebook in JupyterLab, as a person would: opens it, runs it, types, looks, takes pictures.

With SCREENSHOTS=folder in the environment, `photograph` saves what it is shown in the light and in the dark theme for
people to look at.
"""

import os
from pathlib import Path
from typing import Any

from refimpl import notebooks

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
        from playwright.sync_api import expect

        panel = self.panel.locator(f'.refimpl-check[data-exercise="{exercise_id}"][data-outcome="{outcome}"]').last
        expect(panel).to_be_visible(timeout=RAN)
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
