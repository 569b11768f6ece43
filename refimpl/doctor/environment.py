"""Python itself, the packages against the lock, and the room on the disks.

The lock is read from the two files beside the package, where each package has one exact version; a version that is
installed with a local label, such as torch 2.13.0+cpu, is the version without it.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from refimpl.doctor.finding import Finding, Status, install, python
from refimpl.serving.fetch_model import cache_dir

EVERY_CHAPTER, INSTRUCTORS = "every chapter", "instructors"
NEEDED_FOR = {
    "ipywidgets": "chapter 8",
    "jupyterlab_widgets": "chapter 8",
    "torch": "chapter 9",
    "triton": "chapter 10",
    "gguf": "chapter 11",
    "safetensors": "chapter 11",
    "tokenizers": "chapter 11",
}  # the first chapter that needs it; the others are needed by every chapter, themselves or through another package
MOST_LINES = 8
FREE = 1.0  # GB: the model takes 0.2 while it is fetched, and notebooks and updates need some room
GB = 1e9


def check_python(root: Path) -> list[Finding]:
    """Whether this Python is new enough for pyproject.toml."""
    found = ".".join(map(str, sys.version_info[:3]))
    project = root / "pyproject.toml"
    bound = re.search(
        r'^requires-python = ">=([\d.]+)"', project.read_text("utf-8") if project.exists() else "", re.MULTILINE
    )
    if bound is None:
        return [Finding("python", "ok", EVERY_CHAPTER, found)]
    text = f"{found}, {bound[1]} or newer is needed"
    if sys.version_info[:3] >= tuple(map(int, bound[1].split("."))):
        return [Finding("python", "ok", EVERY_CHAPTER, text)]
    return [Finding("python", "wrong", EVERY_CHAPTER, text, "make clean lab PYTHON=/path/to/a/newer/python3")]


def check_versions(root: Path) -> list[Finding]:
    """The learner's lock against what is installed, and the developers' where it has been installed."""
    if not (root / "requirements.txt").exists():
        text = f"not compared: there is no requirements.txt in {root}, and so this is not a checkout of the course"
        return [Finding("versions", "missing", EVERY_CHAPTER, text, "run the doctor in a checkout of the course")]
    findings = list(_against(root, "requirements.txt", EVERY_CHAPTER))
    if installed("nbgrader") or installed("pytest"):
        findings += _against(root, "requirements-dev.txt", INSTRUCTORS)
    return findings


def _against(root: Path, file: str, needed_for: str) -> Iterator[Finding]:
    """One finding when all agree; else one for each package, but one for all that are missing where they are many."""
    lock, mend = locked(root / file), install(root, file)
    found = {name: installed(name) for name in lock}
    other = [name for name in lock if found[name] not in (None, lock[name])]
    missing = [name for name in lock if found[name] is None]
    for name in other:
        text = f"{name} {found[name]} is installed, the lock says {lock[name]}"
        yield Finding("versions", "wrong", NEEDED_FOR.get(name, needed_for), text, mend)
    if len(missing) > MOST_LINES:
        known = [name for name in ("jupyterlab", "matplotlib", "nbgrader", "pytest", *NEEDED_FOR) if name in missing]
        text = f"{len(missing)} of {len(lock)} packages of {file} are not installed, such as {', '.join(known[:4])}"
        yield Finding("versions", _absent(needed_for), needed_for, text, mend)
    else:
        for name in missing:
            text = f"{name} is not installed, the lock says {lock[name]}"
            yield Finding("versions", _absent(needed_for), NEEDED_FOR.get(name, needed_for), text, mend)
    if not other and not missing:
        yield Finding("versions", "ok", needed_for, f"all {len(lock)} packages are as {file} says")


def _absent(needed_for: str) -> Status:
    return "missing" if needed_for == INSTRUCTORS else "wrong"


def locked(file: Path) -> dict[str, str]:
    r"""Name -> version of the packages in a file of the lock that this machine is to have.

    >>> file = getfixture("tmp_path") / "requirements.txt"
    >>> _ = file.write_text('torch==2.13.0\ntriton==3.7.1; platform_system == "BeOS"\n-e .\n')
    >>> locked(file)
    {'torch': '2.13.0'}
    """
    lines = re.findall(r"^([\w.-]+)==([^;\s]+)(?:; *(.*))?$", file.read_text("utf-8"), re.MULTILINE)
    return {name: wanted for name, wanted, marker in lines if _applies(marker)}


def _applies(marker: str) -> bool:
    """Whether this machine is the one that a marker of the lock means: equalities, joined by "and"."""
    here = {"platform_system": platform.system(), "platform_machine": platform.machine()}
    return all(here[name] == value for name, value in re.findall(r'(\w+) == "(\w+)"', marker))


def installed(name: str) -> str | None:
    """The version of a package without its local label, None where it is not installed."""
    try:
        return (version(name) or "unknown").partition("+")[0]
    except (PackageNotFoundError, KeyError):  # KeyError, None: its metadata is damaged
        return None


def check_disk(root: Path) -> list[Finding]:
    """Whether there is room where the environment and where the fetched model lie."""
    findings: dict[int, Finding] = {}
    for folder, needed_for in ((Path(sys.prefix), EVERY_CHAPTER), (cache_dir(), "chapter 11")):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free / GB
        text = f"{free:.1f} GB free for {folder}, {FREE:.0f} GB is needed"
        finding = Finding("disk", "ok", needed_for, text)
        if free < FREE:
            finding = Finding("disk", "wrong", needed_for, text, f"{python()} -m pip cache purge")
        findings.setdefault(there.stat().st_dev, finding)
    return list(findings.values())
