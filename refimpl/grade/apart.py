"""Marks one submission in a process of its own, and comes back whatever that submission does.

Owns the way from a notebook's bytes to what was found in it. Runs in a worker, which may be another machine: it is
given all it needs and reads no file of the course.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from refimpl.grade import walls
from refimpl.grade.limits import MIB, Limits

BROUGHT_DOWN = "the process that marked the notebook was brought down by it"
PATIENCE = 5.0  # seconds
_PIECE = 65_536  # bytes read at a time


class CannotMark(Exception):
    """No kernel starts here, or it cannot check; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What came out of one submission.

    Args:
        report: of the whole notebook, as `check --json` writes it; None when it did not come to its end.
        results: of the checks, as they came.
        problem: why there is no report, in a sentence.
        seconds: it took.
        memory: bytes, the most that its processes had together.
        walls: what stood around it.
    """

    report: dict[str, Any] | None
    results: list[dict[str, Any]]
    problem: str
    seconds: float
    memory: int
    walls: str


def mark_apart(notebook: bytes, name: str, limits: Limits, refused: Sequence[str] = ()) -> Found:
    """Run the checks of a notebook within `limits`; once more where it ends the process that marks it.

    Args:
        notebook: the file's content.
        name: of the file, for what is said of it.
        limits: what it may take.
        refused: folders that it must not read; they matter where there is no bubblewrap.

    Raises:
        CannotMark: when this machine cannot, whatever the notebook is.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="refimpl-grade-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / name).write_bytes(notebook)
        command, path = walls.command(Path(folder), name, limits)
        kept_out = None if walls.bubblewrap() else [*refused]
        request = {"path": path, "limits": dataclasses.asdict(limits), "refused": kept_out}
        lines, why = _answer(command, json.dumps(request), folder, limits)
        if why.startswith(BROUGHT_DOWN):  # by the notebook, or by a machine that was short of memory just then
            lines, why = _answer(command, json.dumps(request), folder, limits)
    if not lines:
        raise CannotMark(f"the process that marks does not start: {why}")
    last = lines[-1]
    if "cannot" in last:
        raise CannotMark(last["cannot"])
    return Found(
        report=last.get("report"),
        results=[line["result"] for line in lines if "result" in line],
        problem=why,
        seconds=time.monotonic() - began,
        memory=last.get("memory", 0),
        walls=walls.in_force(),
    )


def _answer(command: list[str], request: str, folder: str, limits: Limits) -> tuple[list[dict[str, Any]], str]:
    """The lines that the process says, and why there are no more of them: empty when it came to its end."""
    said, mark = bytearray(), f"{os.getpid()} {uuid.uuid4()}"
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**walls.environment("/tmp" if walls.bubblewrap() else folder), "REFIMPL_GRADE": mark},
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        complaints = bytearray()
        readers = [
            _reader(process.stdout, said, limits.output, process),
            _reader(process.stderr, complaints, limits.output, process),
        ]
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(request.encode())
                process.stdin.close()
            why = _end_of(process, limits)
        finally:
            process.kill()
            from refimpl.grade import watch  # needs psutil, which the core does not

            watch.kill_all_marked(mark)  # bubblewrap ends all of them too, but may need a moment
            for reader in readers:
                reader.join(PATIENCE)  # something that got away may hold the other end
    lines = list(_parsed(said))
    if len(said) > limits.output:
        return lines, f"more than {limits.output // MIB} MiB were said of the notebook"
    if lines and ("report" in lines[-1] or "cannot" in lines[-1]):
        return lines, ""
    last_words = complaints.decode(errors="replace").strip().splitlines()[-1:]
    return lines, why + "".join(f" ({words})" for words in last_words)


def _end_of(process: subprocess.Popen[bytes], limits: Limits) -> str:
    try:
        process.wait(limits.seconds)
    except subprocess.TimeoutExpired:
        return f"the notebook had not ended after {limits.seconds:g} seconds"
    return BROUGHT_DOWN


def _reader(stream: IO[bytes], into: bytearray, most: int, process: subprocess.Popen[bytes]) -> threading.Thread:
    def read() -> None:
        while piece := stream.read(_PIECE):
            into.extend(piece)
            if len(into) > most:
                process.kill()
                return

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _parsed(said: bytearray) -> Iterator[dict[str, Any]]:
    for line in bytes(said).splitlines():
        with contextlib.suppress(ValueError):  # a line that was cut off
            yield json.loads(line)
