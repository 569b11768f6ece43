"""A clean kernel: what it is sent, and what it is asked. Its answers are read from its replies, never from outputs."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import os
import queue
import secrets
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from refimpl.check_notebook.report import CannotRun, nothing_found, result_of
from refimpl.check_notebook.seal import Seal
from refimpl.checks import CheckResult
from refimpl.checks.catalogue import chapter_steps, find
from refimpl.checks.engine import examine
from refimpl.checks.sandbox import THREAD
from refimpl.checks.step import Step, one_line, said
from refimpl.work import not_installed

CELL_TIMEOUT = 60.0  # seconds, as for the grader
START_TIMEOUT = 60.0  # seconds for the kernel to come up
PATIENCE = 5.0  # seconds in which an interrupted cell may end


class KernelDied(Exception):
    """The kernel is gone; the text says what a cell did to it.

    Args:
        text: what it did.
        is_sure: whether it was the cell; otherwise it may have been the machine, and is worth another try.
    """

    def __init__(self, text: str, is_sure: bool = True) -> None:
        super().__init__(text)
        self.is_sure = is_sure


@dataclasses.dataclass(frozen=True, slots=True)
class Error:
    """What ended a cell.

    Args:
        kind: the name of the error's class.
        text: the error in words.
        line: the cell's own line that it came from.
        name: the name or module that was not known, if that was it.
    """

    kind: str
    text: str
    line: str
    name: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Examined:
    """What a check in the kernel says.

    Args:
        result: None where the notebook defines no subject.
        put_back: the names of the checks or of Python that the cells had replaced.
        still_runs: whether code that was out of time could not be stopped.
    """

    result: CheckResult | None
    put_back: tuple[str, ...]
    still_runs: bool


class Kernel:
    """A clean kernel that works in a folder: nothing of a user's start-up files, and a home of its own for its files.

    Args:
        manager, client: jupyter_client's own.
    """

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager, self._client = manager, client
        self._key = secrets.token_hex()  # what answers for the checks has to know it
        self.why_it_died = ""  # where somebody knows

    def run(self, source: str, limit: float) -> Error | None:
        """Run the source of one cell, which reads from nobody; what ended it, or None.

        Raises:
            TimeoutError: when it had not ended after `limit` seconds; it was interrupted, and others may follow.
            KernelDied: when the cell took the kernel down, or could not be interrupted.
        """
        message = self._client.execute(source, allow_stdin=False, stop_on_error=False)
        reply = self._reply(message, limit)
        if reply is None:
            self._manager.interrupt_kernel()
            if self._reply(message, PATIENCE) is None:
                raise KernelDied(f"had not ended after {limit:g} seconds and could not be interrupted")
            raise TimeoutError
        if any(payload.get("source") == "ask_exit" for payload in reply.get("payload", ())):
            raise KernelDied("ended the kernel: it calls `exit` or `quit`")
        if reply["status"] == "ok":
            return None
        found: dict[str, Any] = json.loads(self.ask(last_error))
        return Error(reply["ename"], **found)

    def ask(self, function: Callable[..., str], *args: Any, limit: float = CELL_TIMEOUT) -> str:
        """What a function of refimpl answers in the kernel, within `limit` seconds.

        Its arguments are what `repr` can write.

        Raises:
            CannotRun: when it raised; KernelDied.
        """
        called = f"{function.__name__}({', '.join(map(repr, args))})"
        expression = f"__import__('importlib').import_module({function.__module__!r}).{called}"
        message = self._client.execute("", silent=True, allow_stdin=False, user_expressions={"answer": expression})
        reply = self._reply(message, limit)
        if reply is None:
            raise KernelDied(f"did not answer within {limit:g} seconds")
        answer = reply["user_expressions"]["answer"]
        if answer["status"] != "ok":
            raise CannotRun(f"the kernel cannot check anything: {answer['ename']}: {answer['evalue']}")
        text: str = ast.literal_eval(answer["data"]["text/plain"])
        return text

    def examine(self, step: Step, time_limit: float) -> Examined:
        """Check a `step` on what the cells have defined so far, in `time_limit` seconds; raises what `ask` raises."""
        checks = 1 + len(step.after)  # on whose answers the step stands
        said = self.ask(examined, step.exercise_id, time_limit, limit=START_TIMEOUT + checks * time_limit)
        try:
            found = json.loads(said)
            result = found["result"] and result_of(found["result"])
            if found["key"] == self._key and (not result or (result.exercise_id, result.max_points) == _of(step)):
                return Examined(result, tuple(found["put_back"]), found["still_runs"])
        except (ValueError, KeyError, TypeError):
            pass  # nor does this come from the check
        forged = nothing_found(step, "raised", "The notebook answered in place of the check.")
        return Examined(forged, (), still_runs=True)

    def get_ready(self, chapter: str) -> None:
        """Load the checks of a chapter, before any cell can be in their way; raises CannotRun."""
        try:
            self.ask(ready, chapter, self._key)
        except KernelDied as death:
            raise CannotRun(f"the Python kernel {death}, before it ran anything") from death

    def _reply(self, message: str, limit: float) -> dict[str, Any] | None:
        """The content of the reply to a message, None when there is none in time."""
        until = time.monotonic() + limit
        while time.monotonic() < until:
            try:
                reply = self._client.get_shell_msg(timeout=0.2)
            except queue.Empty:
                if not self._manager.is_alive():
                    why = self.why_it_died or "it left Python, crashed it, or took more memory than there is"
                    raise KernelDied(f"ended the kernel: {why}", is_sure=bool(self.why_it_died)) from None
                continue
            except (ValueError, KeyError, TypeError, IndexError) as error:  # jupyter_client's, of no message at all
                raise KernelDied("ended the kernel: it answers what nobody can read") from error
            if reply["parent_header"].get("msg_id") == message:
                content: dict[str, Any] = reply["content"]
                return content
        return None


@contextlib.contextmanager
def clean_kernel(folder: Path, chapter: str) -> Iterator[Kernel]:
    """A new kernel that works in `folder`, ready to check a chapter such as "03", and is gone afterwards.

    Raises:
        CannotRun: when there is none to be had.
    """
    try:
        from jupyter_client.kernelspec import NoSuchKernel
        from jupyter_client.manager import KernelManager
    except ModuleNotFoundError as error:
        raise CannotRun(f"{error}; it comes with `pip install refimpl[lab]`") from error
    with tempfile.TemporaryDirectory(prefix="refimpl-check-") as home:
        manager = KernelManager(kernel_name="python3", connection_file=str(Path(home) / "kernel.json"))
        nowhere = {"stdout": os.open(os.devnull, os.O_WRONLY), "stderr": os.open(os.devnull, os.O_WRONLY)}
        try:
            manager.start_kernel(cwd=str(folder), env={**os.environ, "IPYTHONDIR": home}, **nowhere)
        except (NoSuchKernel, OSError) as error:
            raise CannotRun(f"no Python kernel starts: {error}; `pip install ipykernel` brings one") from error
        finally:
            for descriptor in nowhere.values():
                os.close(descriptor)
        client = manager.client()
        client.start_channels(stdin=False)
        try:
            try:
                client.wait_for_ready(timeout=START_TIMEOUT)
            except RuntimeError as error:
                raise CannotRun(f"the Python kernel does not start: {error}") from error
            client.iopub_channel.stop()  # nobody looks at what cells print, however much it is
            kernel = Kernel(manager, client)
            kernel.get_ready(chapter)
            yield kernel
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


_seals: list[tuple[Seal, str]] = []  # in the kernel: one, and the key of whoever asks


def ready(chapter: str, key: str) -> str:
    """In the kernel: the checks of the chapter are in memory, and sealed."""
    _seals.append((Seal(chapter_steps(chapter)), key))
    return "ready"


def _of(step: Step) -> tuple[str, int]:
    return step.exercise_id, step.points


def last_error() -> str:
    """In the kernel: what ended the last cell, without the frames of anybody but its author."""
    from ipykernel.compiler import get_tmp_directory

    error: Any = sys.last_value
    here: str = get_tmp_directory()  # type: ignore[no-untyped-call]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(here)]
    text, line = said(error).rstrip("."), frames[-1].line if frames else ""
    if isinstance(error, SyntaxError):
        text, line = f"{type(error).__name__}: {error.msg}", error.text
    name = error.name if isinstance(error, NameError | ModuleNotFoundError) else None
    return json.dumps({"text": text, "line": one_line(line or ""), "name": name})


def examined(exercise_id: str, time_limit: float) -> str:
    """In the kernel: what there is to say of a step, as JSON; see `Examined`."""
    from IPython.core.getipython import get_ipython

    ((seal, key),) = _seals
    put_back = seal.mend()
    step, names = find(exercise_id), get_ipython().user_ns  # type: ignore[union-attr]
    try:
        result = examine(step, names[step.subject], time_limit) if step.subject in names else None
    except ModuleNotFoundError as error:
        result = nothing_found(step, "not attempted", not_installed(str(error.name)))
    for name in seal.mend()[:1]:
        result = nothing_found(step, "raised", f"During the check your code replaced `{name}`.")
    still_runs = any(thread.name == THREAD for thread in threading.enumerate())
    answer = result and dataclasses.asdict(result)
    found = {"key": key, "result": answer, "put_back": put_back, "still_runs": still_runs}
    return json.dumps(found)
