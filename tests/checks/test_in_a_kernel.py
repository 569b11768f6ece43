"""A check in a real kernel, where output takes IPython's own streams and a cell runs inside an event loop."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

GIVEN = """
import logging, os, sys, warnings
from learners import allocate, allocator, free
from refimpl.checks import check
logging.basicConfig()  # a handler that holds the kernel's stderr from now on
"""
LOUD = """
def loud(self, *_):
    print("printed")
    print("to stderr", file=sys.stderr)
    warnings.warn("a warning")
    logging.warning("logged")
    os.write(1, b"to descriptor 1")
    os.write(2, b"to descriptor 2")
    return allocate(self)

check("03-allocate", allocator(allocate=loud))
"""
SPIN = """
def spin(self):
    while True:
        pass

check("03-allocate", allocator(allocate=spin))
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    manager, client = start_new_kernel(cwd=str(Path(__file__).parent))
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def outputs(client: BlockingKernelClient, wanted: str) -> list[dict[str, Any]]:
    """The messages that the cell `wanted` shows, up to its end."""
    shown = []
    while True:
        message = client.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") != wanted:
            continue
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return shown
        if message["msg_type"] in ("stream", "execute_result", "error", "display_data"):
            shown.append({"type": message["msg_type"], **message["content"]})


def test_a_loud_answer_shows_one_line_and_a_number(kernel: tuple[KernelManager, BlockingKernelClient]) -> None:
    """G2: anything on stderr would cost all the points."""
    _, client = kernel
    assert outputs(client, client.execute(GIVEN)) == []
    line, result = outputs(client, client.execute(LOUD))
    assert (line["name"], line["text"]) == ("stdout", "03-allocate: passed — 7 properties held on 63 histories.\n")
    assert result["data"]["text/plain"] == "3.0"
    assert "Passed" in result["data"]["text/html"]
    time.sleep(0.3)  # late output of the kernel's pipes would come now
    after = outputs(client, client.execute("print('out'); print('err', file=sys.stderr); logging.warning('log')"))
    texts = {name: "".join(o["text"] for o in after if o["name"] == name) for name in ("stdout", "stderr")}
    assert texts == {"stdout": "out\n", "stderr": "err\nWARNING:root:log\n"}


def test_an_interrupted_check_leaves_a_kernel_that_works(kernel: tuple[KernelManager, BlockingKernelClient]) -> None:
    manager, client = kernel
    assert outputs(client, client.execute(GIVEN)) == []
    cell = client.execute(SPIN)
    time.sleep(1)
    manager.interrupt_kernel()
    (error,) = outputs(client, cell)
    assert error["ename"] == "KeyboardInterrupt"
    line, result = outputs(client, client.execute("check('03-free', allocator())"))
    assert line["text"].startswith("03-free: passed")
    assert result["data"]["text/plain"] == "4.0"
    with pytest.raises(queue.Empty):
        client.get_iopub_msg(timeout=0.3)
