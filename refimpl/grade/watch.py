"""Keeps an eye on the kernel that runs a submission, and ends it and all that it started when it takes too much.

Owns the processes below this one: when a kernel goes, nothing of it stays. Sits beside the kernel inside the walls,
so that an answer which takes too much costs its own step, and the rest of the notebook is marked.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from refimpl.check_notebook.kernel import Kernel, clean_kernel
from refimpl.grade.limits import MIB, Limits
from refimpl.grade.walls import refuse

INTERVAL = 0.1  # seconds between two looks
SLACK = 1.25  # times the memory of one process, for all of them: Python's own MemoryError comes first, and says where
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h


class Watch:
    """The processes below this one, looked at every tenth of a second.

    Args:
        limits: what they may take.
        refused: folders that Python refuses to open in the kernel; None where walls stand around it.
    """

    def __init__(self, limits: Limits, refused: Sequence[str] | None = None) -> None:
        self.limits, self.refused = limits, refused
        self.peak = 0  # bytes of memory, all processes together
        adopt_orphans()

    @contextlib.contextmanager
    def kernel(self, folder: Path, chapter: str) -> Iterator[Kernel]:
        """A clean kernel, and nothing that it started afterwards; see `clean_kernel`."""
        over = threading.Event()
        with clean_kernel(folder, chapter) as kernel:
            if self.refused is not None:
                kernel.ask(refuse, list(self.refused))
            thread = threading.Thread(target=self._look, args=(kernel, over), daemon=True)
            thread.start()
            try:
                yield kernel
            finally:
                over.set()
                thread.join()
                kill_all_below()

    def _look(self, kernel: Kernel, over: threading.Event) -> None:
        parent = os.getppid()
        while not over.wait(INTERVAL):
            if os.getppid() != parent:  # whoever wanted to know is gone
                kill_all_below()
                os._exit(1)
            excess = self._excess()
            if excess:
                kernel.why_it_died = excess
                kill_all_below()

    def _excess(self) -> str:
        """What the processes have too much of, in words; empty when nothing."""
        processes, most = below(), SLACK * self.limits.memory
        if len(processes) > self.limits.processes:
            return f"it started more than {self.limits.processes} processes"
        memory = sum(map(resident, processes))
        if memory > most:  # which counts twice what two processes share, and is quickly asked
            memory = sum(map(own, processes))
        self.peak = max(self.peak, memory)
        return f"it took more than {most / MIB:.0f} MiB of memory" if memory > most else ""


def adopt_orphans() -> None:
    """Make this process the parent of whatever its children leave behind, so that it can be found. (Linux only.)"""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def below() -> list[psutil.Process]:
    """All processes that come from this one."""
    children: list[psutil.Process] = psutil.Process().children(recursive=True)
    return children


def resident(process: psutil.Process) -> int:
    """Bytes of memory that the process has, shared ones included; none when it is gone."""
    with contextlib.suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def own(process: psutil.Process) -> int:
    """Bytes of memory that the process has, its part of the shared ones; none when it is gone."""
    with contextlib.suppress(psutil.Error):
        asked = process.memory_full_info()
        return int(getattr(asked, "pss", asked.uss))
    return 0


def kill_all_below() -> None:
    """End all processes that come from this one."""
    kill_all(below)


def kill_all_marked(mark: str) -> None:
    """End all processes that were born with this text in their environment."""

    def marked() -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and mark in process.environ().values():
                    yield process

    kill_all(lambda: list(marked()))


def kill_all(find: Callable[[], list[psutil.Process]]) -> None:
    """End all processes that `find` finds; first they are halted, so that none of them starts another."""
    halted: set[int] = set()
    while new := [process for process in find() if process.pid not in halted]:
        for process in new:
            halted.add(process.pid)
            with contextlib.suppress(psutil.Error):
                process.suspend()
    processes = find()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=5)
