"""Files of recorded traffic: what is read from a good one, and what is said about a bad one."""

from __future__ import annotations

import itertools
import json
import sys
import tracemalloc

import pytest

from refimpl.simulation import traces
from refimpl.simulation.traces import azure_trace, mooncake_trace, read_trace
from refimpl.simulation.workload import Span, WorkloadRequest

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
DAY = "2023-11-16 18:15:"


@pytest.fixture
def write(tmp_path):
    """Writes lines to a file and returns its path."""

    def write_lines(name, *lines, end="\n"):
        path = tmp_path / name
        path.write_bytes(end.join([*lines, ""]).encode())
        return path

    return write_lines


def mooncake(timestamp=0, input_length=700, output_length=5, hash_ids=(0, 1), **more):
    record = {"timestamp": timestamp, "input_length": input_length, "output_length": output_length}
    return json.dumps(record | {"hash_ids": list(hash_ids)} | more)


def test_an_azure_row_is_a_request_at_its_time_after_the_first(write):
    path = write("a.csv", HEADER, f"{DAY}46.6805900,374,44", f"{DAY}50.9951690,396,109", end="\r\n")
    first, second = azure_trace(path)
    assert (first.arrival_time, first.prompt_len, first.output_len, first.n) == (0, 374, 44, 1)
    assert second.arrival_time == pytest.approx(4.314579, abs=1e-6)
    assert (second.prompt_len, second.output_len, second.answer) == (396, 109, None)


def test_no_two_azure_prompts_share_a_token(write):
    path = write("a.csv", HEADER, f"{DAY}46,30,1", "", f"{DAY}46,30,1", f"{DAY}46,30,1", "")
    prompts = [request.prompt_token_ids() for request in azure_trace(path)]
    assert [len(prompt) for prompt in prompts] == [30, 30, 30]
    assert not any(set(one) & set(other) for one, other in itertools.combinations(prompts, 2))


def test_azure_columns_are_found_by_name(write):
    path = write("a.csv", "\ufeffGeneratedTokens, note, TIMESTAMP, ContextTokens", f'7,"x, y",{DAY}00,9')
    (request,) = azure_trace(path)
    assert (request.prompt_len, request.output_len) == (9, 7)


def test_azure_times_may_have_a_time_zone(write):
    path = write("a.csv", HEADER, "2024-05-10 01:00:00+01:00,1,1", "2024-05-10 00:00:01.5,1,1")
    assert [request.arrival_time for request in azure_trace(path)] == [0, 1.5]


def test_a_mooncake_line_is_a_request_with_a_span_for_each_hash_id(write):
    lines = [mooncake(27_000, 1024, 52, [46, 47], extra=1), "", mooncake(30_500, 1030, 1, [46, 47, 2354])]
    assert list(mooncake_trace(write("m.jsonl", *lines))) == [
        WorkloadRequest(0.0, (Span(46, 512), Span(47, 512)), 52),
        WorkloadRequest(3.5, (Span(46, 512), Span(47, 512), Span(2354, 6)), 1),
    ]


def test_equal_hash_ids_are_equal_tokens_and_others_are_not(write):
    path = write("m.jsonl", mooncake(hash_ids=[5, 6]), mooncake(hash_ids=[5, 7]))
    one, other = (request.prompt_token_ids() for request in mooncake_trace(path))
    assert one[:512] == other[:512]
    assert not set(one[512:]) & set(other[512:])


@pytest.mark.parametrize(
    ("name", "line"),
    [("a.csv", None), ("a", None), ("m.jsonl", mooncake()), ("m.txt", mooncake()), ("m.txt", "\ufeff" + mooncake())],
)
def test_the_format_is_known_by_the_ending_or_the_first_line(write, name, line):
    path = write(name, *([line] if line else [HEADER, f"{DAY}46,700,5"]))
    (request,) = read_trace(str(path))
    assert (request.prompt_len, request.output_len) == (700, 5)


@pytest.mark.parametrize("limit", [1, 2, 3, 9])
def test_a_limit_takes_the_first_requests_and_reads_no_further(write, limit):
    path = write("m.jsonl", mooncake(0), mooncake(1), mooncake(2), *["not read"] * (limit < 4))
    assert len(list(read_trace(path, limit=limit))) == min(limit, 3)


@pytest.mark.parametrize("read", [read_trace, azure_trace, mooncake_trace])
def test_a_limit_below_1_is_refused_at_once(write, read):
    with pytest.raises(ValueError, match=r"limit is 0, it must be 1 or more"):
        read(write("a.csv", HEADER), limit=0)


AZURE_FAULTS = [
    ("TIMESTAMP,ContextTokens,Generated", None, "line 1: no column GeneratedTokens, the columns are"),
    (HEADER, f"{DAY}46,374", "line 2: 2 columns, GeneratedTokens is number 3"),
    (HEADER, f"{DAY}46,many,4", "line 2: ContextTokens is 'many', it must be a whole number"),
    (HEADER, f"{DAY}46,3.5,4", "line 2: ContextTokens is '3.5', it must be a whole number"),
    (HEADER, f"{DAY}46,,4", "line 2: ContextTokens is '', it must be a whole number"),
    (HEADER, f"{DAY}46,0,4", "line 2: ContextTokens is 0, it must be between 1 and 10000000"),
    (HEADER, f"{DAY}46,374,-4", "line 2: GeneratedTokens is -4, it must be between 1 and"),
    (HEADER, f"{DAY}46,10000001,4", "line 2: ContextTokens is 10000001, it must be between 1 and 10000000"),
    (HEADER, "yesterday,374,4", "line 2: TIMESTAMP is 'yesterday', it must be a date and time such as"),
    (HEADER, f"{DAY}46,1,1\n{DAY}45.9,1,1", f"line 3: its time is {DAY}45.9, that of the request before is {DAY}46:"),
    (HEADER, f'{DAY}46,"{"9" * 200_000}",1', "line 2: not CSV: field larger than field limit"),
    (HEADER, None, "holds 0 requests, a trace needs at least 1"),
]


@pytest.mark.parametrize(("header", "rows", "message"), AZURE_FAULTS)
def test_a_bad_azure_file_is_named_with_line_value_and_limit(write, header, rows, message):
    path = write("a.csv", header, *([rows] if rows else []))
    with pytest.raises(ValueError) as caught:
        list(azure_trace(path))
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


MOONCAKE_FAULTS = [
    ("{broken", "line 1: not JSON: Expecting property name"),
    ("[" * 100_000, "line 1: not JSON: "),
    (json.dumps([7] * 1000), "line 1: [7, 7, 7, 7, 7"),
    ("[1, 2]", "line 1: [1, 2] must be an object with timestamp, input_length, output_length, hash_ids"),
    ('{"timestamp": 0, "input_length": 5}', "line 1: no output_length, there are 'timestamp, input_length'"),
    (mooncake("0"), "line 1: timestamp is '0', it must be a number of milliseconds"),
    (mooncake(float("nan")), "line 1: timestamp is nan, it must be a number of milliseconds"),
    (mooncake(True), "line 1: timestamp is True"),
    (mooncake(input_length="700"), "line 1: input_length is '700', it must be a whole number"),
    (mooncake(input_length=True), "line 1: input_length is True, it must be a whole number"),
    (mooncake(input_length=0, hash_ids=[]), "line 1: input_length is 0, it must be between 1 and 10000000"),
    (mooncake(output_length=-1), "line 1: output_length is -1, it must be between 1 and 10000000"),
    (mooncake(input_length=1025), "line 1: 2 hash_ids, an input_length of 1025 in blocks of 512 tokens has 3"),
    (mooncake(input_length=512), "line 1: 2 hash_ids, an input_length of 512 in blocks of 512 tokens has 1"),
    (mooncake() + "\n" + mooncake(hash_ids=[0, -1]), "line 2: a hash id is -1, it must be a whole number of 0 or more"),
    (mooncake(hash_ids=[0, 1 << 40]), "line 1: a hash id is 1099511627776, it must be a whole number of 0 or more and"),
    (mooncake(hash_ids=[0, "x"]), "line 1: a hash id is 'x'"),
    (mooncake(hash_ids=[]).replace("[]", "7"), "line 1: hash_ids is 7, it must be a list"),
    (mooncake(2000) + "\n\n" + mooncake(1999), "line 3: its time is 1999 ms, that of the request before is 2000 ms:"),
    ("", "holds 0 requests, a trace needs at least 1"),
]


@pytest.mark.parametrize(("lines", "message"), MOONCAKE_FAULTS)
def test_a_bad_mooncake_file_is_named_with_line_value_and_limit(write, lines, message):
    path = write("m.jsonl", lines)
    with pytest.raises(ValueError) as caught:
        list(mooncake_trace(path))
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 200


def test_an_empty_file_holds_no_request(write):
    for name in ("a.csv", "m.jsonl"):
        with pytest.raises(ValueError, match=r"holds 0 requests, a trace needs at least 1"):
            list(read_trace(write(name, end="")))


def test_a_file_of_neither_format_says_which_formats_there_are(write):
    with pytest.raises(ValueError, match=r"starts with 'hello', which is neither .*TIMESTAMP.* nor .*hash_ids"):
        read_trace(write("a.txt", "hello"))


def test_what_is_not_text_is_a_line_that_is_not_utf_8(write, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(HEADER.encode() + b"\n\x89PNG\n")
    with pytest.raises(ValueError, match=r"a\.csv, line 2: not UTF-8: invalid start byte at byte 0"):
        list(read_trace(path))


def test_good_lines_before_a_bad_one_have_been_read(write):
    requests = mooncake_trace(write("m.jsonl", mooncake(), "{"))
    assert next(requests).prompt_len == 700
    with pytest.raises(ValueError, match="line 2"):
        next(requests)


def test_reading_takes_no_memory(write):
    """Two sizes of one file: what is held at most is the same."""
    peaks = []
    for num_lines in (2_000, 20_000):
        path = write("m.jsonl", *[mooncake(time) for time in range(num_lines)])
        tracemalloc.start()
        assert sum(1 for _ in mooncake_trace(path)) == num_lines
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 50_000


def test_a_bar_is_drawn_for_long_work_only(write, capsys, monkeypatch):
    """E07."""
    path = write("m.jsonl", *[mooncake(time) for time in range(50)])
    for delay, progress, drawn in [(3.0, True, False), (0.0, True, True), (0.0, False, False)]:
        monkeypatch.setattr(traces, "_BAR_DELAY", delay)
        assert len(list(read_trace(path, progress=progress))) == 50
        printed = capsys.readouterr()
        assert ("m.jsonl" in printed.err) == drawn
        assert printed.out == ""


def test_without_tqdm_there_is_no_bar(write, monkeypatch, capsys):
    monkeypatch.setattr(traces, "_BAR_DELAY", 0.0)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert len(list(read_trace(write("m.jsonl", mooncake()), progress=True))) == 1
    assert capsys.readouterr().err == ""


def test_a_trace_is_read_no_further_than_it_is_asked_for(write):
    requests = mooncake_trace(write("m.jsonl", mooncake(0), mooncake(1), "{"))
    assert len(list(itertools.islice(requests, 2))) == 2
