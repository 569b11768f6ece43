"""The two commands for people: what they say when they cannot work, and what they never do."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")


@pytest.fixture
def checkout(tmp_path):
    """A folder with the Makefile and what it reads."""
    for name in ("Makefile", "pyproject.toml", "requirements.txt", "requirements-dev.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def make(folder, *arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    return subprocess.run(["make", "-C", folder, *arguments], capture_output=True, text=True, env=environment)


def fake_python(folder, script):
    """An executable that stands in for Python."""
    path = folder / "fake-python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"PYTHON={path}"


def only_sentence(result):
    """What make printed for people, without its own last line."""
    return [line for line in result.stderr.splitlines() if not line.startswith("make")]


def test_a_python_that_is_too_old_gets_one_sentence(checkout):
    old = fake_python(checkout, 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac')
    result = make(checkout, ".venv", old)
    assert result.returncode != 0
    (sentence,) = only_sentence(result)
    assert "needs Python 3.11 or newer" in sentence
    assert "Python 3.9.2" in sentence
    assert not (checkout / ".venv").exists()


def test_no_python_at_all_gets_one_sentence(checkout):
    result = make(checkout, ".venv", "PYTHON=no-such-python")
    (sentence,) = only_sentence(result)
    assert "needs Python 3.11 or newer" in sentence
    assert "no-such-python" in sentence


def test_a_missing_venv_module_gets_one_sentence(checkout):
    result = make(checkout, ".venv", fake_python(checkout, 'case "$2" in *venv*) exit 1;; esac'))
    (sentence,) = only_sentence(result)
    assert "apt install python3-venv" in sentence
    assert not (checkout / ".venv").exists()


def test_a_built_environment_is_not_built_again(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv/.complete").touch()
    result = make(checkout, ".venv", "PYTHON=no-such-python")
    assert (result.returncode, result.stderr) == (0, "")


def build(checkout, *targets):
    """What make would run for these targets in a checkout without an environment."""
    result = make(checkout, "--dry-run", *targets)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_learner_never_installs_what_graders_and_tests_need(checkout):
    commands = build(checkout, "lab")
    assert "-r requirements.txt" in commands
    assert "requirements-dev" not in commands
    assert "nbgrader" not in commands


@pytest.mark.parametrize("target", ["grader", "test", "repeat", "coverage", "nightly", "lint", "exercises"])
def test_whoever_needs_more_completes_the_same_environment(checkout, target):
    """In this order, and nbgrader's menu is off before JupyterLab starts: a learner has no use for it."""
    commands = build(checkout, target)
    learners = commands.index("-r requirements.txt")
    others = commands.index("-r requirements-dev.txt")
    assert learners < others < commands.index("labextension disable --level=sys_prefix @jupyter/nbgrader")
    assert commands.count("-m venv .venv") == 1


def test_an_environment_is_completed_anew_when_the_learners_part_changed(checkout):
    (checkout / ".venv").mkdir()
    for minutes_ago, file in ((3, "requirements-dev.txt"), (2, ".venv/.complete-dev"), (1, ".venv/.complete")):
        (checkout / file).touch()
        os.utime(checkout / file, (time.time() - 60 * minutes_ago,) * 2)
    for file in ("pyproject.toml", "requirements.txt"):
        os.utime(checkout / file, (0, 0))
    commands = build(checkout, "grader")
    assert "-m venv" not in commands
    assert "-r requirements-dev.txt" in commands


def test_work_copies_and_never_writes_over_a_learners_file(checkout):
    """P1, P2."""
    exercise = checkout / "exercises/03 with space/03.ipynb"
    exercise.parent.mkdir(parents=True)
    exercise.write_text("released")
    assert "copied" in make(checkout, "work").stdout
    mine = checkout / "my_work/03 with space/03.ipynb"
    assert mine.read_text() == "released"
    mine.write_text("my answer")
    exercise.write_text("released anew")
    assert "kept" in make(checkout, "work").stdout
    assert mine.read_text() == "my answer"


def test_clean_keeps_a_learners_work(checkout):
    for folder in (".venv", "my_work"):
        (checkout / folder).mkdir()
    make(checkout, "clean")
    assert not (checkout / ".venv").exists()
    assert (checkout / "my_work").exists()


def test_lab_serves_the_whole_course_and_opens_the_start_notebook():
    """Dry run: what it would start. The file browser has to show my_work/, which lies beside notebooks/."""
    command = make(ROOT, "lab", "--dry-run", "PYTHON=python3").stdout
    assert f'--ServerApp.root_dir="{ROOT}"' in command
    assert "default_url=/lab/tree/notebooks/00_start_here.ipynb" in command
    assert ("--allow-root" in command) is (os.getuid() == 0)
    assert (ROOT / "notebooks/00_start_here.ipynb").exists()
