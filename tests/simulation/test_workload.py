"""What the made workloads promise: order, lengths, shared beginnings, the same requests every time."""

import math
import random
import tracemalloc
from collections import Counter
from itertools import islice, pairwise

import pytest

from refimpl.simulation.workload import (
    Lengths,
    Span,
    WorkloadRequest,
    alpaca_like,
    chat,
    parallel_sampling,
    poisson,
    shared_system_prompt,
    sharegpt_like,
)

FIXED = {"prompt": Lengths(10), "output": Lengths(5)}
WORKLOADS = {
    "poisson": lambda seed: poisson(200, 3.0, seed=seed),
    "parallel_sampling": lambda seed: parallel_sampling(200, 3.0, n=4, seed=seed),
    "shared_system_prompt": lambda seed: shared_system_prompt(200, 3.0, system_tokens=100, seed=seed),
    "chat": lambda seed: chat(60, 3.0, turns=4, think_time=5.0, seed=seed),
    "sharegpt_like": lambda seed: sharegpt_like(200, 3.0, seed=seed),
}


@pytest.mark.parametrize("make", WORKLOADS.values(), ids=WORKLOADS)
def test_a_seed_gives_the_same_requests_each_time_and_in_order(make):
    workload = make(7)
    first = list(workload)
    assert first == list(workload) == list(make(7))
    assert first != list(make(8))
    assert all(a.arrival_time <= b.arrival_time for a, b in pairwise(first))


@pytest.mark.parametrize(
    ("make", "prompt_mean", "output_mean"), [(sharegpt_like, 161.31, 337.99), (alpaca_like, 19.31, 58.45)]
)
def test_lengths_have_the_papers_means(make, prompt_mean, output_mean):
    requests = list(make(20_000, 10.0))
    assert sum(r.prompt_len for r in requests) / len(requests) == pytest.approx(prompt_mean, rel=0.03)
    assert sum(r.output_len for r in requests) / len(requests) == pytest.approx(output_mean, rel=0.03)
    assert max(max(r.prompt_len, r.output_len) for r in requests) <= 1024


@pytest.mark.parametrize(("sigma", "maximum"), [(0.5, None), (1.0, 400), (1.5, 200), (2.0, 2000)])
def test_what_the_maximum_cuts_off_does_not_move_the_mean(sigma, maximum):
    lengths, chance = Lengths(100, sigma, maximum), random.Random(0)
    drawn = [lengths.draw(chance) for _ in range(40_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(100, rel=0.04)
    assert min(drawn) >= 1
    assert maximum is None or max(drawn) <= maximum


def test_arrivals_come_at_the_rate():
    times = [request.arrival_time for request in poisson(20_000, 4.0, **FIXED)]
    assert times[-1] / len(times) == pytest.approx(1 / 4, rel=0.03)
    gaps = [b - a for a, b in pairwise(times)]
    assert sum(gap > 1 / 4 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.02)  # exponential


def test_an_infinite_rate_brings_all_at_once():
    assert [request.arrival_time for request in poisson(5, math.inf, **FIXED)] == [0.0] * 5


def test_prompts_of_a_workload_share_nothing_unless_they_should():
    contents = Counter(span.content for request in poisson(100, 1.0) for span in request.prompt)
    assert set(contents.values()) == {1}


def test_a_system_prompt_is_what_requests_begin_with():
    workload = shared_system_prompt(3000, 1.0, system_tokens=300, num_system_prompts=3, user=Lengths(20))
    requests = list(workload)
    assert {request.prompt_len for request in requests} == {320}
    used = Counter(request.prompt[0] for request in requests)
    assert {span.num_tokens for span in used} == {300}
    assert len(used) == 3
    assert min(used.values()) > 900
    own = Counter(request.prompt[1].content for request in requests)
    assert set(own.values()) == {1}
    assert not {span.content for span in used} & set(own)


def test_a_chat_turn_holds_everything_said_before_it():
    requests = list(chat(30, 0.5, turns=4, think_time=2.0, user=Lengths(10), output=Lengths(20)))
    assert len(requests) == 120
    last_turn_of = {}  # content of the first span -> the conversation's turn before
    for request in requests:
        before = last_turn_of.get(request.prompt[0].content)
        if before is not None:
            answer = Span(before.answer, before.output_len)
            assert request.prompt[:-1] == (*before.prompt, answer)
            assert request.arrival_time >= before.arrival_time + 20 * 0.05  # the answer has been read
        last_turn_of[request.prompt[0].content] = request
    assert {request.prompt_len for request in last_turn_of.values()} == {4 * 10 + 3 * 20}


def test_a_conversation_ends_before_a_prompt_would_be_too_long():
    requests = list(chat(5, 1.0, turns=9, think_time=1.0, max_prompt_len=75, user=Lengths(10), output=Lengths(20)))
    assert max(request.prompt_len for request in requests) == 70
    assert len(requests) == 5 * 3


def test_equal_spans_hold_equal_tokens():
    one = WorkloadRequest(0.0, (Span(3, 4), Span(5, 2)), 1)
    other = WorkloadRequest(1.0, (Span(3, 4), Span(6, 2)), 1)
    assert one.prompt_token_ids() == [3, 3, 3, 3, 5, 5]
    assert one.prompt_token_ids()[:4] == other.prompt_token_ids()[:4]
    assert one.prompt_token_ids()[4:] != other.prompt_token_ids()[4:]


def test_a_million_requests_are_made_one_at_a_time():
    tracemalloc.start()
    try:
        for _ in islice(poisson(1_000_000, 5.0), 20_000):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Span(-1, 3), "content is -1"),
        (lambda: Span(1 << 40, 3), "below 1099511627776"),
        (lambda: Span(1, 0), "num_tokens is 0"),
        (lambda: WorkloadRequest(-1.0, (Span(0, 1),), 1), "arrival_time is -1.0"),
        (lambda: WorkloadRequest(math.nan, (Span(0, 1),), 1), "arrival_time is nan"),
        (lambda: WorkloadRequest(0.0, (), 1), "0 spans"),
        (lambda: WorkloadRequest(0.0, (Span(0, 1),), 0), "output_len is 0"),
        (lambda: WorkloadRequest(0.0, (Span(0, 1),), 1, n=0), "n is 0"),
        (lambda: WorkloadRequest(0.0, (Span(0, 1),), 1, answer=-2), "answer is -2"),
        (lambda: Lengths(0.5), "mean length is 0.5"),
        (lambda: Lengths(10, sigma=-1), "sigma is -1"),
        (lambda: Lengths(10, sigma=4), "between 0 and 3"),
        (lambda: Lengths(10, sigma=1, maximum=19), "twice their mean"),
        (lambda: Lengths(10, maximum=9), "the maximum 9"),
        (lambda: poisson(-1, 1.0), "requests is -1"),
        (lambda: poisson(1, 0.0), "rate is 0.0"),
        (lambda: poisson(1, math.nan), "rate is nan"),
        (lambda: parallel_sampling(1, 1.0, n=0), "n is 0"),
        (lambda: shared_system_prompt(1, 1.0, system_tokens=0), "system_tokens is 0"),
        (lambda: shared_system_prompt(1, 1.0, system_tokens=1, num_system_prompts=0), "num_system_prompts is 0"),
        (lambda: chat(1, 1.0, turns=0, think_time=1.0), "turns is 0"),
        (lambda: chat(1, 1.0, turns=1, think_time=-1.0), "think_time is -1.0"),
        (lambda: chat(1, 1.0, turns=1, think_time=1.0, max_prompt_len=0), "max_prompt_len is 0"),
    ],
)
def test_impossible_values_are_refused_at_once(make, words):
    with pytest.raises(ValueError, match=words):
        make()
