"""Marks submissions on dask's workers: a few ahead of what is asked for, and each in the order in which it is done.

Owns the cluster, if it made one. A worker that dies costs nothing: dask gives its submission to another.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from distributed import Client, LocalCluster, as_completed

from refimpl.grade.apart import Found, mark_apart
from refimpl.grade.limits import Limits
from refimpl.grade.marks import package
from refimpl.grade.submissions import Submission

AHEAD = 2  # submissions a worker may have waiting, so that a class of thousands is not held in memory
TRIES_AGAIN = 1  # after an error that is none of the submission's
TIMEOUT = "20s"  # for a scheduler to answer


class NoCluster(Exception):
    """Nobody can mark; the text says why."""


@contextlib.contextmanager
def cluster(address: str | None, workers: int) -> Iterator[Client]:
    """A client of the scheduler at `address`, or of one here with so many workers, a process each.

    Raises:
        NoCluster: when there is no scheduler, or its workers would mark by other checks than this machine.
    """
    with contextlib.ExitStack() as stack:
        if address is None:
            here = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=0,
                dashboard_address=":0",
                silence_logs=logging.CRITICAL,
            )
            client = stack.enter_context(Client(stack.enter_context(here)))
        else:
            try:
                client = stack.enter_context(Client(address, timeout=TIMEOUT))
            except (OSError, ValueError) as error:
                raise NoCluster(f"no scheduler answers at {address}: {error}") from error
        _insist_on_equal_checks(client)
        yield client


def _insist_on_equal_checks(client: Client) -> None:
    try:
        packages = client.run(package)
    except ImportError as error:
        raise NoCluster(f"a worker lacks what marking needs: {error}") from error
    if not packages:
        raise NoCluster("the scheduler has no workers")
    other = sorted(worker for worker, found in packages.items() if found != package())
    if other:
        raise NoCluster(f"{len(other)} of {len(packages)} workers have another version of refimpl, such as {other[0]}")


def found_by(
    client: Client, todo: Iterable[Submission], limits: Limits, refused: Sequence[Path]
) -> Iterator[tuple[Submission, Found | BaseException]]:
    """Each submission with what was found in it, or the error for which nobody could mark it; done first, told first.

    Args:
        client: of the cluster.
        todo: the submissions.
        limits: for each.
        refused: folders that none of them may read.
    """
    folders, waiting = [str(folder.resolve()) for folder in refused], iter(todo)

    def submitted(submission: Submission) -> object:
        future = client.submit(
            mark_apart, submission.notebook, submission.file, limits, folders, pure=False, retries=TRIES_AGAIN
        )
        of[future.key] = submission
        return future

    of: dict[object, Submission] = {}
    at_once = AHEAD * max(1, sum(client.nthreads().values()))
    results = as_completed([submitted(submission) for submission in itertools.islice(waiting, at_once)])
    for future in results:
        submission = of.pop(future.key)
        error = future.exception()
        yield submission, error if error is not None else future.result()
        future.release()
        for following in itertools.islice(waiting, 1):
            results.add(submitted(following))
