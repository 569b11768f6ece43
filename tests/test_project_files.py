"""Files that others' tools read: the workflows, the dev container, pre-commit's hooks, the citation."""

import json
import re
import shlex
import subprocess
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from refimpl.cli import _parser

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
COMMANDS = next(action.choices for action in _parser()._actions if action.choices)


def steps(path):
    return [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]


def unknown(script):
    """What a script names that is not there: targets of make, commands of refimpl, files that it runs or reads."""
    for line in script.splitlines():
        words = shlex.split(line.partition(" #")[0])
        if words[:1] == ["make"]:
            yield from (word for word in words[1:] if "=" not in word and word not in TARGETS)
        elif "refimpl" in words and words[words.index("refimpl") - 1] == "-m":
            yield from {words[words.index("refimpl") + 1]} - COMMANDS.keys()
        yield from (file for file in named_files(words) if not list(ROOT.glob(file)))


def named_files(words):
    for before, word in zip(["", *words], words, strict=False):
        if before in ("-r", "-f") or re.match(r"(tests|\.ci|notebooks|solutions)/", word):
            yield word.rstrip(";")


def test_the_workflows_are_there():
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "weekly.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_to_a_commit_with_its_version_beside_it(path):
    used = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert len(used) == len([step for step in steps(path) if "uses" in step]) > 0
    for line in used:
        assert re.fullmatch(r" +- uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_is_the_same_commit_everywhere():
    pins = {}
    for step in [step for path in WORKFLOWS for step in steps(path) if "uses" in step]:
        action, commit = step["uses"].split("@")
        pins.setdefault(action, set()).add(commit)
    assert {name: len(commits) for name, commits in pins.items()} == dict.fromkeys(pins, 1)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_nothing_else_and_ends(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_runs_is_there(path):
    for step in steps(path):
        if "run" in step:
            assert list(unknown(step["run"])) == []
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)


@pytest.mark.parametrize(
    ("script", "missing"),
    [
        ("make tset", ["tset"]),
        ("python -m refimpl docter", ["docter"]),
        ("python -m pytest tests/cor", ["tests/cor"]),
        ("pip install -r requirement.txt", ["requirement.txt"]),
        (".ci/runs", [".ci/runs"]),
        ("make grader PYTHON=python3.12\npython -m refimpl doctor # and so on", []),
    ],
)
def test_what_is_not_there_is_noticed(script, missing):
    assert list(unknown(script)) == missing


def test_ci_runs_all_on_linux_and_the_core_on_the_other_systems():
    """S2, S7, N3."""
    workflow = yaml.safe_load(WORKFLOWS[0].read_text())
    jobs = workflow["jobs"]
    assert ".ci/run" in [step.get("run") for step in jobs["all"]["steps"]]
    systems = {name.partition("-")[0] for name in jobs["core"]["strategy"]["matrix"]["os"]}
    assert systems == {"macos", "windows"}
    assert "python -m refimpl doctor" in [step.get("run") for step in jobs["core"]["steps"]]
    assert any("environment.yml" in step.get("run", "") for step in jobs["conda"]["steps"])
    assert any("upload-artifact" in step.get("uses", "") and step["if"] == "failure()" for step in jobs["all"]["steps"])
    assert workflow["concurrency"]["cancel-in-progress"] is True


def test_every_week_the_newest_versions_are_tried():
    """S1."""
    workflow = yaml.safe_load(WORKFLOWS[1].read_text())
    assert workflow[True]["schedule"]  # YAML reads the word `on` as true
    scripts = "\n".join(step.get("run", "") for step in steps(WORKFLOWS[1]))
    assert "--upgrade -e '.[dev]'" in scripts
    assert "requirements" not in scripts
    assert "make test" in scripts


def test_the_oldest_python_is_the_one_that_is_tested():
    """S2."""
    every = [step for path in WORKFLOWS for step in steps(path)]
    named = [step["with"]["python-version"] for step in every if "setup-python" in step.get("uses", "")]
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert set(named) == {oldest, "${{ matrix.python }}"}
    assert yaml.safe_load(WORKFLOWS[1].read_text())["jobs"]["newest"]["strategy"]["matrix"]["python"][0] == oldest


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-dev.txt"])
def test_every_pin_installs_on_the_oldest_python(lock):
    """Its first release, not only its latest: distributions stay with what they had."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    pins = re.findall(r"^([\w.-]+)==([\w.]+)(?!.*;)", (ROOT / lock).read_text(), re.MULTILINE)
    assert len(pins) > 20
    installed = {name: metadata(name) for name, _ in pins}
    if any(installed[name]["Version"].partition("+")[0] != version for name, version in pins):
        pytest.skip("what is installed here is not the lock's, as on the newest versions every week")
    needs = {name: found.get("Requires-Python", "") for name, found in installed.items()}
    assert {name: need for name, need in needs.items() if not SpecifierSet(need).contains(oldest)} == {}


def test_ci_installs_what_tests_would_skip_without(tmp_path):
    """Where it may. Programs that say what they were called with stand in for apt-get and for the rest."""
    script = (ROOT / ".ci/run").read_text()
    for name in ("apt-get", "make"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/log\n')
    (tmp_path / "id").write_text("#!/bin/sh\necho 0\n")
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    lines = script.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("missing="))
    end = next(number for number, line in enumerate(lines) if line == "fi")
    part = "\n".join(lines[start : end + 1])
    bash = ["/bin/bash", "-euo", "pipefail", "-c", part]
    subprocess.run(bash, env={"PATH": str(tmp_path)}, check=True)
    called = (tmp_path / "log").read_text()
    assert "apt-get -qq install -y chromium bubblewrap" in called


def test_the_dev_container_builds_the_environment_with_what_tests_find():
    folder = ROOT / ".devcontainer"
    container = json.loads((folder / "devcontainer.json").read_text())
    dockerfile = (folder / container["build"]["dockerfile"]).read_text()
    assert list(unknown(container["postCreateCommand"])) == []
    python = re.search(r"^FROM .*python:1-([\d.]+)-bookworm$", dockerfile, re.MULTILINE)[1]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python)
    assert {"bubblewrap", "chromium", "make"} <= set(dockerfile.split())


def test_hooks_are_programs_of_the_environment():
    """So that no version stands outside the lock."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    lint = set(re.findall(r"\$\(BIN\)/(ruff check|ruff format|mypy|lint-imports)", (ROOT / "Makefile").read_text()))
    entries = [hook["entry"] for hook in repository["hooks"]]
    assert {entry.removeprefix(".venv/bin/").removesuffix(" --force-exclude") for entry in entries} == {
        *lint,
        "python -m refimpl release --check",
    }
    assert all(entry.startswith(".venv/bin/") and not list(unknown(entry)) for entry in entries)
    assert all(hook["language"] == "system" for hook in repository["hooks"])


def test_the_citation_is_of_this_version_and_names_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["cff-version"]) == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    (paper,) = citation["references"]
    assert paper["doi"] == "10.1145/3600006.3613165"
    assert paper["authors"][0]["family-names"] == "Kwon"
