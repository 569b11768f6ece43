"""Recorded traffic of real services as a workload: when a request came, how long it was, what it shared.

Two public formats are read, a line at a time, so that a file of any length takes no memory. A file is right in every
line that has been read, or its reading ends with an error that names the file, the line, the value and the limit.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from refimpl.simulation.workload import NUM_CONTENTS, Span, WorkloadRequest

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
MOONCAKE_BLOCK_SIZE = 512  # tokens that one hash id stands for
MAX_TOKENS = 10_000_000  # of a prompt or an answer: more than any model takes, and few enough to be made
_BAR_DELAY = 3.0  # seconds of work before a progress bar appears


def read_trace(path: str | Path, *, limit: int | None = None, progress: bool = False) -> Iterator[WorkloadRequest]:
    """A trace of either format: by the file's ending, `.csv` or `.jsonl`, else by its first line.

    Args:
        path: the file.
        limit: requests at most, from the first on.
        progress: show on stderr how much of the file has been read, when that takes more than a few seconds.

    Returns:
        The requests, each made when it is asked for.

    Raises:
        ValueError: at once, for a limit below 1 or a file of neither format; while reading, for a bad line.
        OSError: for a file that cannot be read.
    """
    path = Path(path)
    with path.open("rb") as file:
        start = file.readline(1000).decode(errors="replace").lstrip("\ufeff").strip()
    if path.suffix == ".csv" or any(column in start for column in AZURE_COLUMNS):
        return azure_trace(path, limit=limit, progress=progress)
    if path.suffix == ".jsonl" or start.startswith("{"):
        return mooncake_trace(path, limit=limit, progress=progress)
    raise ValueError(
        f"{path} starts with {start[:40]!r}, which is neither a CSV file with the columns {', '.join(AZURE_COLUMNS)} "
        f"nor JSON lines with {', '.join(MOONCAKE_KEYS)}"
    )


def azure_trace(path: str | Path, *, limit: int | None = None, progress: bool = False) -> Iterator[WorkloadRequest]:
    """The requests of an Azure LLM inference trace: CSV with the columns of `AZURE_COLUMNS`, others ignored.

    The file says how long prompts are and not what is in them, so no two prompts share a token. Arguments and errors
    are those of `read_trace`.

    Source: Patel et al., "Splitwise", ISCA 2024; https://github.com/Azure/AzurePublicDataset.
    """
    path = Path(path)
    return _requests(path, _azure_rows(path, progress), limit)


def mooncake_trace(path: str | Path, *, limit: int | None = None, progress: bool = False) -> Iterator[WorkloadRequest]:
    """The requests of a Mooncake trace: JSON lines with the keys of `MOONCAKE_KEYS`, others ignored.

    Each hash id becomes a span of `MOONCAKE_BLOCK_SIZE` tokens, the last one of a prompt of as many as are left: equal
    ids hold equal tokens, so prompts share what the ids say they share, whatever block_size they are cut by. What is
    in an answer is not in the file. Arguments and errors are those of `read_trace`.

    Source: Qin et al., "Mooncake", FAST 2025; https://github.com/kvcache-ai/Mooncake.
    """
    path = Path(path)
    return _requests(path, _mooncake_rows(path, progress), limit)


@dataclass(frozen=True, slots=True)
class _Line:
    """Where a value stands, for the errors about it."""

    path: Path
    number: int  # from 1

    def error(self, problem: str) -> ValueError:
        return ValueError(f"{self.path}, line {self.number}: {problem}")

    def num_tokens(self, name: str, value: object) -> int:
        """The value, when it is a number of tokens that a prompt or an answer can have."""
        if type(value) is not int:
            raise self.error(f"{name} is {_shown(value)}, it must be a whole number")
        if not 1 <= value <= MAX_TOKENS:
            raise self.error(f"{name} is {_shown(value)}, it must be between 1 and {MAX_TOKENS}")
        return value


@dataclass(frozen=True, slots=True)
class _Row:
    """One request as its line has it."""

    line: _Line
    written_time: str
    seconds: float  # on the file's own clock
    prompt: tuple[Span, ...]
    output_len: int


def _requests(path: Path, rows: Iterator[_Row], limit: int | None) -> Iterator[WorkloadRequest]:
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}, it must be 1 or more")
    return _from_the_start(path, islice(rows, limit))


def _from_the_start(path: Path, rows: Iterable[_Row]) -> Iterator[WorkloadRequest]:
    """The rows as requests, their times counted from the first."""
    first = previous = None
    for row in rows:
        first, previous = first or row, previous or row
        if row.seconds < previous.seconds:
            raise row.line.error(
                f"its time is {row.written_time}, that of the request before is {previous.written_time}: times must "
                f"not run backwards"
            )
        previous = row
        yield WorkloadRequest(round(row.seconds - first.seconds, 6), row.prompt, row.output_len)
    if first is None:
        raise ValueError(f"{path} holds 0 requests, a trace needs at least 1")


def _azure_rows(path: Path, progress: bool) -> Iterator[_Row]:
    reader = csv.reader(_lines(path, progress), skipinitialspace=True)
    try:
        names = [name.strip() for name in next(reader, [])]
        columns = [_column(_Line(path, 1), names, name) for name in AZURE_COLUMNS] if names else []
        for values in reader:
            if values:
                yield _azure_row(_Line(path, reader.line_num), values, columns)
    except csv.Error as error:
        raise _Line(path, reader.line_num).error(f"not CSV: {error}") from None


def _column(line: _Line, names: list[str], name: str) -> int:
    """Where a column stands."""
    if name not in names:
        raise line.error(f"no column {name}, the columns are {_shown(', '.join(names))}")
    return names.index(name)


def _azure_row(line: _Line, values: list[str], columns: list[int]) -> _Row:
    if len(values) <= max(columns):
        raise line.error(
            f"{len(values)} columns, {AZURE_COLUMNS[columns.index(max(columns))]} is number {max(columns) + 1}"
        )
    time, prompt_len, output_len = (values[column] for column in columns)
    prompt = Span(line.number, line.num_tokens("ContextTokens", _whole(prompt_len)))
    return _Row(line, time, _seconds(line, time), (prompt,), line.num_tokens("GeneratedTokens", _whole(output_len)))


def _whole(text: str) -> int | str:
    """The number that is written there; the text itself where there is none."""
    try:
        return int(text)
    except ValueError:
        return text


def _seconds(line: _Line, text: str) -> float:
    """A date and time in seconds; without a time zone it is UTC's."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise line.error(
            f"TIMESTAMP is {_shown(text)}, it must be a date and time such as 2023-11-16 18:15:46.68"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _mooncake_rows(path: Path, progress: bool) -> Iterator[_Row]:
    for number, text in enumerate(_lines(path, progress), 1):
        if text.strip():
            yield _mooncake_row(_Line(path, number), text)


def _mooncake_row(line: _Line, text: str) -> _Row:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise line.error(f"not JSON: {error}") from None
    if not isinstance(record, dict):
        raise line.error(f"{_shown(record)} must be an object with {', '.join(MOONCAKE_KEYS)}")
    for key in MOONCAKE_KEYS:
        if key not in record:
            raise line.error(f"no {key}, there are {_shown(', '.join(record))}")
    time, prompt_len, output_len, hash_ids = (record[key] for key in MOONCAKE_KEYS)
    if type(time) not in (int, float) or not math.isfinite(time):
        raise line.error(f"timestamp is {_shown(time)}, it must be a number of milliseconds")
    prompt_len = line.num_tokens("input_length", prompt_len)
    prompt = _spans(line, prompt_len, hash_ids)
    return _Row(line, f"{time} ms", time / 1000, prompt, line.num_tokens("output_length", output_len))


def _spans(line: _Line, prompt_len: int, hash_ids: object) -> tuple[Span, ...]:
    """A prompt of so many tokens, a span for each of its hash ids."""
    if not isinstance(hash_ids, list):
        raise line.error(f"hash_ids is {_shown(hash_ids)}, it must be a list")
    num_blocks = -(-prompt_len // MOONCAKE_BLOCK_SIZE)
    if len(hash_ids) != num_blocks:
        raise line.error(
            f"{len(hash_ids)} hash_ids, an input_length of {prompt_len} in blocks of {MOONCAKE_BLOCK_SIZE} tokens has "
            f"{num_blocks}"
        )
    for hash_id in hash_ids:
        if type(hash_id) is not int or not 0 <= hash_id < NUM_CONTENTS:
            raise line.error(
                f"a hash id is {_shown(hash_id)}, it must be a whole number of 0 or more and below {NUM_CONTENTS}"
            )
    *full, last = hash_ids
    return (
        *(Span(hash_id, MOONCAKE_BLOCK_SIZE) for hash_id in full),
        Span(last, prompt_len - len(full) * MOONCAKE_BLOCK_SIZE),
    )


def _lines(path: Path, progress: bool) -> Iterator[str]:
    """The lines of a text file, one in memory at a time."""
    with path.open("rb") as file, _bar(path, progress) as update:
        for number, line in enumerate(file, 1):
            update(len(line))
            try:
                yield line.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise _Line(path, number).error(f"not UTF-8: {error.reason} at byte {error.start}") from None


@contextmanager
def _bar(path: Path, progress: bool) -> Iterator[Callable[[int], object]]:
    """A progress bar over the file's bytes, where one is wanted and tqdm is there to draw it."""
    tqdm = _tqdm() if progress else None
    if tqdm is None:
        yield lambda num_bytes: None
        return
    with tqdm(total=path.stat().st_size, desc=path.name, unit="B", unit_scale=True, delay=_BAR_DELAY) as bar:
        yield bar.update


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        return None
    return tqdm


def _shown(value: object) -> str:
    """A value as an error shows it: cut short where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
