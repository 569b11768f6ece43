"""The walls around a submission: what it sees of this machine, and whom it can talk to.

With bubblewrap it sees Python, refimpl and an empty folder of its own, and has no network and no other processes.
Without, Python itself refuses to open the folders of other submissions and to use the network, in the kernel only,
which keeps honest code from it and not code that is out to get round it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

import refimpl
from refimpl.grade.limits import Limits

ROOM = Path("/tmp/submission")  # inside
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives", "/etc/fonts")


@functools.cache
def bubblewrap() -> str | None:
    """The program's path where it is there and this machine lets it work."""
    program = shutil.which("bwrap")
    if program is None or sys.platform != "linux":
        return None
    look = ["--chdir", str(ROOM), sys.executable, "-c", "import refimpl.grade.inside"]
    works = subprocess.run([*_walled(program, Limits().file_size), *look], capture_output=True, env=environment("/tmp"))
    return program if works.returncode == 0 else None


def in_force() -> str:
    """What stands around a submission on this machine, in words."""
    if bubblewrap() is not None:
        return "bubblewrap: no network, no files but Python's and its own, no other processes; resource limits"
    missing = "does not work on this machine" if shutil.which("bwrap") else "is not installed"
    limits = "resource limits" if sys.platform != "win32" else "no resource limits of the system; watched"
    return f"{limits}; bubblewrap {missing}, so network and files are only refused by Python itself"


def command(folder: Path, notebook: str, limits: Limits) -> tuple[list[str], str]:
    """How to start `inside`, and the path that the notebook has for it.

    Args:
        folder: holds the notebook and nothing else.
        notebook: its name.
        limits: a file of its own may be so large.
    """
    python = [sys.executable, "-m", "refimpl.grade.inside"]
    program = bubblewrap()
    if program is None:
        return python, str(folder / notebook)
    file = ["--ro-bind", str(folder / notebook), str(ROOM / notebook), "--chdir", str(ROOM)]
    return [*_walled(program, limits.file_size), *file, *python], str(ROOM / notebook)


def _walled(program: str, file_size: int) -> list[str]:
    room = [word for path in ("/tmp", "/dev/shm") for word in ("--size", str(4 * file_size), "--tmpfs", path)]
    links = [word for path in SYSTEM if os.path.islink(path) for word in ("--symlink", os.readlink(path), path)]
    folders = [path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    seen = [word for path in _outermost([*folders, *_python()]) for word in ("--ro-bind", path, path)]
    settings = [word for path in SETTINGS for word in ("--ro-bind-try", path, path)]
    return [
        *(program, "--unshare-all", "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        *("--proc", "/proc", "--dev", "/dev", *room, "--dir", str(ROOM), *seen, *links, *settings),
        *("--remount-ro", "/"),
    ]


def _python() -> list[str]:
    """The folders that Python itself needs: its own, the environment's, and refimpl."""
    bases = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")}
    return [*sorted(bases), str(_package())]


def _package() -> Path:
    """refimpl, which need not be the one that is installed."""
    return Path(refimpl.__file__).resolve().parent


def _outermost(paths: Iterable[str]) -> list[str]:
    """The paths that lie in no other one, each once."""
    kept: list[str] = []
    for path in sorted(set(paths), key=len):
        if not any(Path(path).is_relative_to(outer) for outer in kept):
            kept.append(path)
    return kept


def environment(folder: str) -> dict[str, str]:
    """What a submission is told of its surroundings: nothing of the grader's. What it leaves lies in `folder`."""
    own = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    python = {"PYTHONPATH": str(_package().parent), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
    return {**own, **one_thread, **python, "HOME": folder, "TMPDIR": folder}


def refuse(folders: Sequence[str]) -> str:
    """In a kernel without bubblewrap: nothing in these folders is opened from now on, and nobody is called.

    Python's audit hooks cannot be taken back. Sockets that exist already, the kernel's own, go on.
    """
    kept_out = [os.path.realpath(folder) for folder in folders]

    def hook(event: str, args: tuple[object, ...]) -> None:
        if event in ("socket.connect", "socket.sendto", "socket.bind"):
            raise PermissionError(f"no network while a submission is marked ({event})")
        if event in ("open", "os.listdir", "os.scandir") and isinstance(args[0], str | bytes):
            path = os.path.realpath(os.fsdecode(args[0]))
            if any(path == folder or path.startswith(folder + os.sep) for folder in kept_out):
                raise PermissionError(f"{path} is not for submissions to read")

    sys.addaudithook(hook)
    return "refused"
