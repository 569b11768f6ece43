"""What arrives, and when: requests with named prompts, made by chance from a seed.

A workload is an iterable of requests in order of arrival. The ones made here can be run through again, each time the
same, and hold one request at a time, so that a million of them take no memory.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count, repeat
from statistics import NormalDist

NUM_CONTENTS = 1 << 40  # contents are below this, what nobody named is above
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a prompt: `num_tokens` times the token `content`.

    Which tokens they are does not matter to a cache, only which are equal; a list of one int over and over is what
    takes least. Two spans next to each other need different contents to be told from one.

    Raises:
        ValueError: for a content that is negative or 2**40 or more, or a span without tokens.
    """

    content: int
    num_tokens: int

    def __post_init__(self) -> None:
        if not 0 <= self.content < NUM_CONTENTS:
            raise ValueError(f"content is {self.content}, it must be 0 or more and below {NUM_CONTENTS}")
        if self.num_tokens < 1:
            raise ValueError(f"num_tokens is {self.num_tokens}, a span needs at least 1")


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """One request.

    Args:
        arrival_time: seconds from the start.
        prompt: its spans, in order.
        output_len: tokens that each of its sequences generates.
        n: sequences that grow from the prompt.
        answer: content of the first sequence's answer, so that a later chat turn can hold the same tokens; None:
            equal to nobody's.

    Raises:
        ValueError: for a negative time, a prompt without tokens, an output_len or an n below 1, or an answer whose
            content is negative or too large.

    >>> request = WorkloadRequest(0.5, (Span(7, 3), Span(8, 1)), output_len=2)
    >>> request.prompt_len, request.prompt_token_ids()
    (4, [7, 7, 7, 8])
    """

    arrival_time: float
    prompt: tuple[Span, ...]
    output_len: int
    n: int = 1
    answer: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.arrival_time < math.inf:
            raise ValueError(f"arrival_time is {self.arrival_time}, it must be 0 or more, and finite")
        if not self.prompt:
            raise ValueError("the prompt has 0 spans, it needs at least 1")
        for name in ("output_len", "n"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be 1 or more")
        if self.answer is not None and not 0 <= self.answer < NUM_CONTENTS:
            raise ValueError(f"answer is {self.answer}, it must be 0 or more and below {NUM_CONTENTS}")

    @property
    def prompt_len(self) -> int:
        """Tokens of the prompt."""
        return sum(span.num_tokens for span in self.prompt)

    def prompt_token_ids(self) -> list[int]:
        """The prompt's tokens."""
        return list(chain.from_iterable(repeat(span.content, span.num_tokens) for span in self.prompt))


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long texts are, in tokens: lognormal, with this mean exactly, whatever `maximum` cuts off.

    Args:
        mean: of the lengths, before they are rounded to whole tokens of 1 or more.
        sigma: standard deviation of their logarithm; 0 for texts of one length.
        maximum: longer texts do not occur; None for no limit.

    Raises:
        ValueError: for a mean below 1, a sigma that is negative or above 3, or a maximum below twice the mean (below
            the mean, where sigma is 0).

    >>> lengths = Lengths(mean=100, sigma=1.0, maximum=1000)
    >>> drawn = [lengths.draw(random.Random(seed)) for seed in range(1000)]
    >>> max(drawn) <= 1000, Lengths(mean=5).draw(random.Random(0))
    (True, 5)
    """

    mean: float
    sigma: float = 0.0
    maximum: int | None = None
    _mu: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.mean < math.inf:
            raise ValueError(f"the mean length is {self.mean} tokens, it must be 1 or more, and finite")
        if not 0 <= self.sigma <= 3:
            raise ValueError(f"sigma is {self.sigma}, it must be between 0 and 3")
        if self.maximum is not None and self.mean > (self.maximum if self.sigma == 0 else self.maximum / 2):
            raise ValueError(
                f"the mean length is {self.mean} tokens and the maximum {self.maximum}: lengths that vary need a "
                f"maximum of twice their mean or more"
            )
        object.__setattr__(self, "_mu", self._fitted_mu())

    def draw(self, chance: random.Random) -> int:
        """One length."""
        while True:
            length = max(1, round(chance.lognormvariate(self._mu, self.sigma) if self.sigma else self.mean))
            if self.maximum is None or length <= self.maximum:
                return length

    def _fitted_mu(self) -> float:
        """Mean of the logarithm that gives the wanted mean: by halving, where a part is cut off."""
        mu = math.log(self.mean) - self.sigma**2 / 2
        if self.maximum is None or self.sigma == 0:
            return mu
        low, high = mu, math.log(self.maximum) + 8 * self.sigma
        for _ in range(60):
            mu = (low + high) / 2
            low, high = (mu, high) if self._mean_below_maximum(mu) < self.mean else (low, mu)
        return mu

    def _mean_below_maximum(self, mu: float) -> float:
        """Mean of the lognormal of `mu` and sigma, given that it is below the maximum."""
        assert self.maximum is not None
        edge = (math.log(self.maximum) - mu) / self.sigma
        kept = _NORMAL.cdf(edge)
        if kept == 0:
            return float(self.maximum)
        return math.exp(mu + self.sigma**2 / 2) * _NORMAL.cdf(edge - self.sigma) / kept


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests that are made anew, and equal, each time that they are run through."""

    make: Callable[[], Iterator[WorkloadRequest]]

    def __iter__(self) -> Iterator[WorkloadRequest]:
        return self.make()


# The prompts and answers of public chat logs, with the means of the PagedAttention paper (SOSP 2023, figure 11). The
# paper prints no spread: sigma 1 gives the long tail of its histograms. 1024 tokens each keep within OPT's 2048.
SHAREGPT_PROMPT = Lengths(mean=161.31, sigma=1.0, maximum=1024)
SHAREGPT_OUTPUT = Lengths(mean=337.99, sigma=1.0, maximum=1024)
ALPACA_PROMPT = Lengths(mean=19.31, sigma=0.5, maximum=1024)
ALPACA_OUTPUT = Lengths(mean=58.45, sigma=1.0, maximum=1024)


def poisson(
    num_requests: int,
    rate: float,
    *,
    prompt: Lengths = SHAREGPT_PROMPT,
    output: Lengths = SHAREGPT_OUTPUT,
    seed: int = 0,
) -> Workload:
    """Requests that know nothing of each other.

    Args:
        num_requests: how many.
        rate: requests a second on average; `math.inf`: all at once, at 0.
        prompt, output: their lengths.
        seed: equal seeds give equal requests.

    Raises:
        ValueError: for a negative number of requests or a rate of 0 or less.

    >>> [request.prompt_len for request in poisson(3, rate=2.0, prompt=Lengths(10), output=Lengths(4))]
    [10, 10, 10]
    """
    return parallel_sampling(num_requests, rate, n=1, prompt=prompt, output=output, seed=seed)


def parallel_sampling(
    num_requests: int,
    rate: float,
    *,
    n: int,
    prompt: Lengths = SHAREGPT_PROMPT,
    output: Lengths = SHAREGPT_OUTPUT,
    seed: int = 0,
) -> Workload:
    """Requests for `n` answers each, which share the prompt's blocks. Arguments as for `poisson`."""
    _check_arrivals(num_requests, rate)
    _check_at_least_1("n", n)

    def make() -> Iterator[WorkloadRequest]:
        chance = random.Random(seed)
        for content, now in zip(range(num_requests), _arrival_times(rate, chance), strict=False):
            yield WorkloadRequest(now, (Span(content, prompt.draw(chance)),), output.draw(chance), n)

    return Workload(make)


def shared_system_prompt(
    num_requests: int,
    rate: float,
    *,
    system_tokens: int,
    num_system_prompts: int = 1,
    user: Lengths = SHAREGPT_PROMPT,
    output: Lengths = SHAREGPT_OUTPUT,
    seed: int = 0,
) -> Workload:
    """Requests that begin with one of a few long texts, each as often as the others, and go on with their own.

    Args:
        system_tokens: length of the texts in common.
        num_system_prompts: how many of them there are.
        user: length of what follows.
        num_requests, rate, output, seed: as for `poisson`.

    Raises:
        ValueError: as `poisson`, and for a system prompt without tokens or none of them.
    """
    _check_arrivals(num_requests, rate)
    _check_at_least_1("system_tokens", system_tokens)
    _check_at_least_1("num_system_prompts", num_system_prompts)

    def make() -> Iterator[WorkloadRequest]:
        chance = random.Random(seed)
        for index, now in zip(range(num_requests), _arrival_times(rate, chance), strict=False):
            system = Span(chance.randrange(num_system_prompts), system_tokens)
            own = Span(num_system_prompts + index, user.draw(chance))
            yield WorkloadRequest(now, (system, own), output.draw(chance))

    return Workload(make)


def chat(
    num_conversations: int,
    rate: float,
    *,
    turns: int,
    think_time: float,
    seconds_per_answer_token: float = 0.05,
    max_prompt_len: int = 2048,
    user: Lengths = SHAREGPT_PROMPT,
    output: Lengths = SHAREGPT_OUTPUT,
    seed: int = 0,
) -> Workload:
    """Conversations: the prompt of a turn is everything said before it, answers included, and something new.

    A turn comes when the answer before it has been read, at `seconds_per_answer_token`, and thought about. That is
    fixed beforehand: a server that is slower than the reader is overtaken by the next turn.

    Args:
        num_conversations: how many.
        rate: conversations that begin a second, on average.
        turns: of each, or fewer where the next prompt would be too long.
        think_time: mean seconds between an answer and the next turn, exponential.
        seconds_per_answer_token: how long a token of an answer takes until it has come and been read.
        max_prompt_len: tokens; a conversation ends before a prompt would be longer.
        user, output: lengths of what is asked and answered in a turn.
        seed: as for `poisson`.

    Raises:
        ValueError: as `poisson`, and for turns below 1, negative seconds or a max_prompt_len below 1.
    """
    _check_arrivals(num_conversations, rate)
    _check_at_least_1("turns", turns)
    _check_at_least_1("max_prompt_len", max_prompt_len)
    for name, seconds in (("think_time", think_time), ("seconds_per_answer_token", seconds_per_answer_token)):
        if not 0 <= seconds < math.inf:
            raise ValueError(f"{name} is {seconds} seconds, it must be 0 or more, and finite")

    def make() -> Iterator[WorkloadRequest]:
        chance, contents, turn_numbers = random.Random(seed), count(), count()
        starts = zip(range(num_conversations), _arrival_times(rate, chance), strict=False)
        start = next(starts, None)
        nothing: tuple[Span, ...] = ()
        due: list[tuple[float, int, int, tuple[Span, ...]]] = []  # a heap: (time, for ties, turns left, said before)
        while start is not None or due:
            if start is not None and (not due or start[1] <= due[0][0]):
                now, turns_left, said = start[1], turns, nothing
                start = next(starts, None)
            else:
                now, _, turns_left, said = heappop(due)
            prompt = (*said, Span(next(contents), user.draw(chance)))
            answer = Span(next(contents), output.draw(chance))
            if sum(span.num_tokens for span in prompt) > max_prompt_len:
                continue
            yield WorkloadRequest(now, prompt, answer.num_tokens, answer=answer.content)
            if turns_left > 1:
                pause = answer.num_tokens * seconds_per_answer_token
                pause += chance.expovariate(1 / think_time) if think_time else 0.0
                heappush(due, (now + pause, next(turn_numbers), turns_left - 1, (*prompt, answer)))

    return Workload(make)


def sharegpt_like(num_requests: int, rate: float, *, seed: int = 0) -> Workload:
    """Lengths with ShareGPT's means, 161.31 tokens of prompt and 337.99 of output. Arguments as for `poisson`.

    Source: PagedAttention paper (SOSP 2023), section 6.1 and figure 11, for the means alone.
    """
    return poisson(num_requests, rate, seed=seed)


def alpaca_like(num_requests: int, rate: float, *, seed: int = 0) -> Workload:
    """Lengths with Alpaca's means, 19.31 tokens of prompt and 58.45 of output: as `sharegpt_like`, and its source."""
    return poisson(num_requests, rate, prompt=ALPACA_PROMPT, output=ALPACA_OUTPUT, seed=seed)


def _arrival_times(rate: float, chance: random.Random) -> Iterator[float]:
    """The moments of a Poisson process."""
    now = 0.0
    while True:
        now += chance.expovariate(rate)
        yield now


def _check_arrivals(num_requests: int, rate: float) -> None:
    if num_requests < 0:
        raise ValueError(f"the number of requests is {num_requests}, it must be 0 or more")
    if not rate > 0:
        raise ValueError(f"rate is {rate} requests a second, it must be above 0")


def _check_at_least_1(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}, it must be 1 or more")
