"""A JupyterLab and a browser for the tests beside this file, each of which says what course the server shows.

Needs a Chromium or Chrome on the PATH, and skips without one.
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
from driver import STARTED

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
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


@pytest.fixture(scope="module")
def lab(course: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A JupyterLab that serves the course on a free port with a home of its own; the value is its address."""
    pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright")
    if CHROMIUM is None:
        pytest.skip("no chromium, chromium-browser, google-chrome or chrome on the PATH")
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
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
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
