"""The learners' notebooks, generated from the solutions: `exercises/` is never edited by hand.

Owns the way from `solutions/NN_name/` to `exercises/NN_name/`: nbgrader takes the solution regions and the
outputs out and locks the check cells, `notebooks` writes the canonical form. Always holds: the same solutions
give the same bytes, no file that did not come from here is removed, and where something cannot be released
`exercises/` stays exactly as it was.
"""

import logging
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCE, RELEASE = "solutions", "exercises"
MEND = "python -m refimpl release"
BY_PROGRAMS = {".ipynb_checkpoints", "__pycache__"}  # folders that JupyterLab and Python make and git ignores


class ReleaseError(Exception):
    """The solutions cannot be released; the text is one line that names what stands in the way and the reason."""


class CannotRelease(Exception):
    """Nothing was tried: nbgrader or the folder of solutions is missing; the text says what to do."""


def release(root: Path) -> list[str]:
    """Make `root/exercises` what `root/solutions` says and return one line for each file that changed.

    The whole folder is generated beside the old one and takes its place at the end. Raises `CannotRelease` or
    `ReleaseError`, the latter also where a file would be lost, and then nothing has changed.
    """
    committed = root / RELEASE
    with tempfile.TemporaryDirectory(dir=root, prefix=".release-") as workplace:
        fresh = generate(root, Path(workplace))
        changed = differences(committed, fresh)
        extra = sorted(_contents(committed).keys() - _contents(fresh).keys())
        if extra:
            gone = f"Nothing was changed; when nobody needs them: rm {shlex.join(extra)}"
            raise ReleaseError(f"No notebook in {SOURCE}/ gives {', '.join(extra)}. {gone}")
        if changed:
            _keep_what_programs_made(committed, fresh)
            _replace(committed, fresh, Path(workplace) / "old")
    return changed


def compare(root: Path) -> list[str]:
    """Return a line for each difference between `root/exercises` and the solutions; changes nothing."""
    with tempfile.TemporaryDirectory(prefix="release-") as workplace:
        return differences(root / RELEASE, generate(root, Path(workplace)))


def differences(committed: Path, fresh: Path) -> list[str]:
    """Return how the folder `committed` departs from `fresh`, one line a file, in the order of the names.

    Hidden files and links count. What git never carries does not: empty folders and those in BY_PROGRAMS.
    """
    old, new = _contents(committed), _contents(fresh)
    found = []
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            found.append(f"{name} is missing")
        elif name not in new:
            found.append(f"{name} is extra: no notebook in {SOURCE}/ gives it")
        elif old[name] != new[name]:
            found.append(f"{name} differs" if old[name] is not None else f"{name} is no plain file")
    return found


def generate(root: Path, workplace: Path) -> Path:
    """Release every chapter of `root/solutions` into `workplace` and return the folder that holds them.

    Raises `CannotRelease` when nbgrader or the solutions are missing, `ReleaseError` when a notebook is
    refused.
    """
    chapters = _chapters(root / SOURCE)
    config = _config(root)
    from refimpl import notebooks  # here, because it needs what nbgrader brings along

    config.CourseDirectory.root = str(workplace)
    fresh = workplace / RELEASE
    fresh.mkdir()
    for chapter in chapters:
        shutil.copytree(chapter, workplace / SOURCE / chapter.name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        _generate_chapter(chapter.name, config)
        for path in sorted((fresh / chapter.name).glob("*.ipynb")):
            notebooks.write(notebooks.read(path), path)
    return fresh


def main(check: bool = False, root: Path | None = None) -> int:
    """Run `release` (or `release --check`) for the command line; `root` is the folder of the checkout, here if None.

    Returns 0 when `exercises/` is, or now is, what the solutions say; 1 when `--check` found a difference or
    a notebook cannot be released; 2 when nothing could be tried.
    """
    root = Path.cwd() if root is None else root.resolve()
    try:
        changed = compare(root) if check else release(root)
    except CannotRelease as error:
        print(error, file=sys.stderr)
        return 2
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    for line in changed:
        print(line if check else f"mended: {line}")
    if check and changed:
        print(f"{RELEASE}/ is not what {SOURCE}/ gives. To mend it: {MEND}")
        return 1
    print(f"{RELEASE}/ is what {SOURCE}/ gives.")
    return 0


def _chapters(source: Path) -> list[Path]:
    """Return the chapter folders, each of which holds one notebook of its own name and nothing else to give away."""
    if not source.is_dir():
        raise CannotRelease(f"There is no folder {source}: run this in the folder that holds {SOURCE}/.")
    chapters = sorted(path for path in source.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
    if not chapters:
        raise CannotRelease(f"{source} holds no chapter: a chapter is a folder NN_name with NN_name.ipynb in it.")
    for chapter in chapters:
        found = sorted(path.name for path in chapter.iterdir() if path.name[0] != "." and path.name != "__pycache__")
        if found != [f"{chapter.name}.ipynb"]:
            wanted = f"one notebook, {chapter.name}.ipynb"
            raise ReleaseError(f"{SOURCE}/{chapter.name} must hold {wanted}; it holds {', '.join(found) or 'none'}.")
    return chapters


def nbgrader_config(root: Path) -> Any:
    """Return what `root/nbgrader_config.py` says; raises `CannotRelease` without nbgrader."""
    try:
        import nbgrader  # noqa: F401
    except ImportError as error:
        raise CannotRelease("Releasing needs nbgrader, which is not installed: `make grader` installs it.") from error
    from traitlets.config.loader import Config, PyFileConfigLoader

    named = root / "nbgrader_config.py"
    return PyFileConfigLoader(named.name, path=str(root)).load_config() if named.is_file() else Config()


def _config(root: Path) -> Any:
    """Return what `root/nbgrader_config.py` says, with the folders set and no database."""
    config = nbgrader_config(root)
    config.CourseDirectory.source_directory = SOURCE
    config.CourseDirectory.release_directory = RELEASE
    config.GenerateAssignment.no_database = True  # these two are nbgrader's --no-db
    config.SaveCells.enabled = False
    return config


def _generate_chapter(chapter: str, config: Any) -> None:
    """Let nbgrader release one chapter without a word; what stopped it becomes the error."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.converters.base import NbGraderException
    from nbgrader.coursedir import CourseDirectory

    log, kept = logging.getLogger(__name__), _Kept()
    log.addHandler(kept)
    course = CourseDirectory(config=config, log=log, assignment_id=chapter)
    try:
        GenerateAssignment(coursedir=course, config=config, log=log).start()
    except NbGraderException as error:
        raise ReleaseError(f"{SOURCE}/{chapter} cannot be released: {kept.reason(str(error))}") from error
    finally:
        log.removeHandler(kept)


class _Kept(logging.Handler):
    """Keeps what nbgrader logs, to find in it the error that nbgrader's own exception only points at."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def reason(self, otherwise: str) -> str:
        """Return the last line of the first traceback in the log, or else `otherwise`, on one line."""
        tracebacks = [message for message in self.messages if message.startswith("Traceback")]
        return " ".join((tracebacks[0].strip().splitlines()[-1] if tracebacks else otherwise).split())


def _contents(folder: Path) -> dict[str, bytes | None]:
    """Return what git would carry of `folder`, by its name from the parent: its bytes, None for a link.

    A `folder` that is a link or a file is all there is.
    """
    is_folder = folder.is_dir() and not folder.is_symlink()
    paths = _below(folder) if is_folder else [folder] if os.path.lexists(folder) else []
    return {
        path.relative_to(folder.parent).as_posix(): path.read_bytes() if _is_plain(path) else None for path in paths
    }


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files and links below `folder`, those in BY_PROGRAMS left out."""
    for path in folder.iterdir():
        if path.is_symlink() or not path.is_dir():
            yield path
        elif path.name not in BY_PROGRAMS:
            yield from _below(path)


def _keep_what_programs_made(committed: Path, fresh: Path) -> None:
    """Copy the folders in BY_PROGRAMS to `fresh`: a checkpoint may be all that is left of somebody's work."""
    for name in BY_PROGRAMS:
        for path in committed.rglob(name):
            if path.is_dir() and not path.is_symlink():
                shutil.copytree(path, fresh / path.relative_to(committed), symlinks=True, dirs_exist_ok=True)


def _replace(target: Path, fresh: Path, aside: Path) -> None:
    """Put the folder `fresh` in the place of `target`, or leave `target` where it is."""
    if target.exists():
        target.rename(aside)
    try:
        fresh.rename(target)
    except OSError:
        if aside.exists():
            aside.rename(target)
        raise
