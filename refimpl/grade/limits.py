"""What a submission may take: time, memory, processes, files, and what it may say.

Owns the numbers and the part of them that the operating system keeps for a process and its children. What it does not
keep everywhere, `watch` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import Any

MIB = 2**20


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """For one submission, all of its processes together.

    Args:
        seconds: for the whole notebook.
        cell_seconds: for one of its cells.
        check_seconds: for one check: more than a learner's own has, so that a busy machine takes no marks from anybody.
        memory: bytes.
        processes: at once.
        file_size: bytes of a file that it writes.
        output: bytes of what is said of it.
        notebook: bytes of the submitted file.

    Raises:
        ValueError: for a limit that is not more than 0.

    >>> Limits(memory=512 * MIB).told()
    '600 s, 60 s a cell, 30 s a check, 512 MiB of memory, 64 processes, files of 64 MiB'
    """

    seconds: float = 600.0
    cell_seconds: float = 60.0
    check_seconds: float = 30.0
    memory: int = 2048 * MIB
    processes: int = 64
    file_size: int = 64 * MIB
    output: int = 4 * MIB
    notebook: int = 64 * MIB

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise ValueError(f"{field.name} is {value:g}, and has to be more than 0")

    def told(self) -> str:
        """The numbers that matter to a reader."""
        times = f"{self.seconds:g} s, {self.cell_seconds:g} s a cell, {self.check_seconds:g} s a check"
        room = f"{self.memory // MIB} MiB of memory, {self.processes} processes, files of {self.file_size // MIB} MiB"
        return f"{times}, {room}"


THREADS = 16  # of one process, where the system counts threads as processes


def keep(limits: Limits) -> None:
    """Have the operating system hold this process, and all that it starts, to the limits that it knows."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    wanted: dict[Any, int] = {
        resource.RLIMIT_DATA: limits.memory,  # not RLIMIT_AS: torch maps gigabytes that it never touches
        resource.RLIMIT_FSIZE: limits.file_size,
        resource.RLIMIT_CORE: 0,
    }
    if hasattr(resource, "RLIMIT_NPROC"):  # counts a user's processes, all of them: a last wall, for a fork bomb
        wanted[resource.RLIMIT_NPROC] = _processes_of_this_user() + limits.processes * THREADS
    for what, most in wanted.items():
        _, hard = resource.getrlimit(what)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # a system that knows the name and not the limit
            resource.setrlimit(what, (allowed, allowed))


def _processes_of_this_user() -> int:
    """Threads, as RLIMIT_NPROC counts them."""
    import psutil

    count = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid():
                count += process.num_threads()
    return count
