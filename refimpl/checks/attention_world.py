"""Calls of the learner's attention on tensors made for them, beside the account: what chapter 10 plays histories on.

Every operation is one call. The account is in `attention_account`: sums over lists, in double precision, and beside
each the numbers that a wrong thought would give, by which the thought is told. What must not be read holds NaN. torch
is loaded when a check runs. In methods `got` is what the learner's function returned, and `paged` what it was given.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from refimpl.checks.attention_account import NAN, Paged, Tokens, exp, finite, rounded, same
from refimpl.checks.attention_layouts import LAYOUTS, NOT_A_BLOCK
from refimpl.checks.attention_thoughts import Thought, recognised
from refimpl.checks.step import History, Log, Operation, Setup, counted, show
from refimpl.checks.thoughts import TELLING, TellingWorld

TENSOR = "returns a float32 tensor of the right shape"
KEEPS = "what it was given stays as it was"

PAIR = "returns the output and lse of every head, float32 tensors"
AVERAGE = "the output is the average of the values, weighed by the softmax of the scores"
GROUPS = "the query heads of a group read one KV head"
SCALE = "the scale is the caller's, or one over the root of head_dim"
LSE = "lse is the logarithm of the sum of exp(score)"
LARGE = "scores of hundreds do no harm"
NOTHING = "no tokens give output 0 and lse -inf"

BLOCKS = "the blocks are those of the table, in its order"
MANY_BLOCKS = "the next block changes the state of those before it rightly"
PART_FULL = "a part of a block counts as far as it is filled"
NO_CONTEXT = "a sequence without tokens gives 0"

KINDS = ("usual", "usual", "equal", "high", "low", "rising", "falling", "apart")
LARGE_KINDS = KINDS[3:]
SCALES = (None, None, 0.3, 1.5)
NOTHING_THERE: Any = (RuntimeError, LookupError, ValueError, ArithmeticError)  # errors of code that needs a token
CALLS = 3  # in a random history
SEEDS = 10**6


def changed(tensors: Sequence[Any], before: Sequence[Any]) -> bool:
    """Whether a tensor is no longer what it was before, NaN in the same places."""
    return any(
        tensor.shape != was.shape or not bool(((tensor == was) | (tensor.isnan() & was.isnan())).all())
        for tensor, was in zip(tensors, before, strict=True)
    )


class CallsWorld(TellingWorld):
    """A function; each operation is one call on tensors of its own, of sizes that are the world's.

    `setup` and `log` are as in `World`.
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.calls = 0
        self.last: tuple[list[Any], list[Any]] = ([], [])  # what was returned before, as it is now and as it was

    def choices(self) -> Iterable[Operation]:
        """A few random calls, drawn from the seed of the world."""
        if self.calls < CALLS:
            rng = random.Random(f"{self.setup['seed']}/{self.calls}")
            yield from (self.any_call(rng) for _ in range(3))

    def perform(self, operation: Operation) -> None:
        """One call; what comes after it may tell more."""
        self.calls += 1
        self.ask(*operation[1:])
        self.answered = True

    @abstractmethod
    def any_call(self, rng: random.Random) -> Operation:
        """A random operation."""

    @abstractmethod
    def ask(self, *arguments: Any) -> None:
        """Call the learner's function and compare."""

    def insist_on_tensor(self, name: str, what: str, got: Any, shape: tuple[int, ...], told: str | None = None) -> None:
        """The property `name`: this is a float32 tensor of this shape."""
        import torch

        should = f"{what} should be a float32 tensor of shape {list(shape)}"
        is_tensor = isinstance(got, torch.Tensor)
        but = f"it has shape {list(got.shape)} and dtype {got.dtype}" if is_tensor else f"it is {_kind_of(got)}"
        fits = is_tensor and tuple(got.shape) == shape and got.dtype == torch.float32
        self.log.hold(name, fits, should, but, told, got=but)

    def insist_on_pair(self, name: str, got: Any, heads: int, head_dim: int, told: str | None) -> None:
        """The property `name`: this is the output and lse of every head."""
        is_pair = isinstance(got, (tuple, list)) and len(got) == 2
        self.log.hold(name, is_pair, "it should return output and lse", f"it returned {_kind_of(got)}", told)
        self.insist_on_tensor(name, "the output", got[0], (heads, head_dim))
        self.insist_on_tensor(name, "lse", got[1], (heads,))

    def check_kept(self, tensors: Sequence[Any], before: Sequence[Any]) -> None:
        """The learner's function has left its arguments as they were before."""
        should = "the tensors that it was given should stay as they were"
        self.log.hold(KEEPS, not changed(tensors, before), should, "one has changed")

    def check_last(self, name: str, *got: Any) -> None:
        """The property `name`: what the call before returned is none of this call's `got`."""
        should = "what the call before this one returned should stay as it was"
        self.log.hold(name, not changed(*self.last), should, "it has changed")
        self.last = [*got], [tensor.clone() for tensor in got]

    def error_that_tells(self, paged: Paged) -> tuple[type[Exception], str] | None:
        """An error, and the misconception it tells of a function that has answered."""
        if not (self.answered and self.telling):
            return None
        if not all(paged.context_lens):
            return NOTHING_THERE, "no-tokens-forgotten"
        if any(NOT_A_BLOCK in table for table in paged.tables):
            return IndexError, "padding-read"
        return None


def _kind_of(got: Any) -> str:
    if got is None or isinstance(got, (int, float)):
        return show(got)
    return f"a {type(got).__name__}{f' of {len(got)}' if isinstance(got, (list, tuple)) else ''}"


class StateWorld(CallsWorld):
    """A function that returns the output and lse of every head, for one query token."""

    def about(self, tokens: Tokens, kind: str, otherwise: str) -> str:
        """The property that a call on scores of this kind is about most, or `otherwise`."""
        if not tokens.keys:
            return NOTHING
        if kind in LARGE_KINDS:
            return LARGE
        if tokens.scale is not None:
            return SCALE
        return GROUPS if tokens.group > 1 and tokens.num_kv_heads > 1 else otherwise

    def compare(
        self, got: Any, tokens: Tokens, of_output: str, thoughts: Callable[[Any, Any], Iterator[Thought]]
    ) -> None:
        """The pair, its output under the property `of_output`, its lse; thoughts are told from (output, lse)."""
        import torch

        states = tokens.states()
        heads, told = len(states), None
        if got is None:
            told = "nothing-returned"
        elif isinstance(got, torch.Tensor) and got.shape == (heads, tokens.head_dim):
            told = "lse-not-returned"
        self.insist_on_pair(PAIR, got, heads, tokens.head_dim, told)
        self.check_last(PAIR, *got)
        output, lse = got[0].tolist(), got[1].tolist()
        sum_of_exp = sum(exp(score) for score in tokens.scores(0))
        evidence = {
            "heads": heads,
            "kv_heads": tokens.num_kv_heads,
            "group": tokens.group,
            "head_dim": tokens.head_dim,
            "scale": tokens.scale,
            "tokens": counted(len(tokens.keys), "token"),
            "largest": rounded(max(tokens.scores(0), default=NAN)),
            "sum": rounded(sum_of_exp),
        }
        for head, state in enumerate(states):
            for name, what, is_now, should in (
                (of_output, f"output[{head}]", output[head], state.output),
                (of_output if of_output in (NOTHING, LARGE) else LSE, f"lse[{head}]", lse[head], state.lse),
            ):
                right = same(is_now, should)
                misconception = None if right or not self.telling else recognised(thoughts(output, lse))
                self.log.hold(
                    name,
                    right,
                    f"{what} should be {rounded(should)}",
                    f"it is {rounded(is_now)}",
                    misconception,
                    **evidence,
                    head=head,
                    got=rounded(is_now),
                    should=rounded(should),
                    kv_head=tokens.kv_head(head),
                )


class BatchWorld(CallsWorld):
    """Several sequences at once, each head of each compared."""

    def compare(
        self,
        got: Any,
        paged: Paged,
        property_of: Callable[[int], str],
        thoughts: Callable[[int, Any, Any], Iterator[Thought]],
        **told: Any,
    ) -> None:
        """Each sequence under its property; thoughts are told from (sequence, its output, all outputs)."""
        heads, dims = len(paged.query[0]), paged.head_dim
        shape = (len(paged.context_lens), heads, dims)
        self.insist_on_tensor(TENSOR, "the result", got, shape, "nothing-returned" if got is None else None)
        self.check_last(TENSOR, got)
        outputs = got.tolist()
        for seq, context_len in enumerate(paged.context_lens):
            tokens = paged.tokens(seq)
            for head, state in enumerate(tokens.states()):
                right = same(outputs[seq][head], state.output)
                name = None if right or not self.telling else recognised(thoughts(seq, outputs[seq], outputs))
                self.log.hold(
                    property_of(seq),
                    right,
                    f"result[{seq}, {head}] should be {rounded(state.output)}",
                    f"it is {rounded(outputs[seq][head])}",
                    name,
                    seq=seq,
                    tokens=counted(context_len, "token"),
                    longest=max(paged.context_lens),
                    head=head,
                    kv_head=tokens.kv_head(head),
                    group=tokens.group,
                    size=paged.block_size,
                    head_dim=dims,
                    scale=paged.scale,
                    **told,
                )
        if any(paged.context_lens):
            self.check_kept(paged.tensors, paged.before)

    def some_lengths(self, rng: random.Random) -> tuple[int, ...]:
        """Lengths of one to three sequences."""
        size = self.setup["block_size"]
        lengths = (0, 1, size, 2 * size + 1, rng.randint(1, 4 * size), rng.randint(1, 4 * size))
        return tuple(rng.choice(lengths) for _ in range(rng.choice((1, 2, 3))))


def vanished(output: Any) -> bool:
    """Whether some head's exponentials were out of range: its output is not finite, or 0 throughout."""
    return not finite(output) or not all(map(any, output))


def said_scale(scale: float | None) -> str:
    """The argument for the scale, where one is given."""
    return "" if scale is None else f", scale={scale}"


def scale_given(scale: float | None) -> dict[str, Any]:
    """The same as an argument by name."""
    return {} if scale is None else {"scale": scale}


def row_sizes(rng: random.Random) -> Setup:
    """A few heads of a few elements."""
    return {
        "num_kv_heads": rng.choice((1, 2, 3)),
        "num_groups": rng.choice((1, 2, 3)),
        "num_dims": rng.choice((1, 2, 4)),
        "seed": rng.randrange(1, SEEDS),
    }


def block_sizes(rng: random.Random) -> Setup:
    """The same in blocks."""
    return {**row_sizes(rng), "num_dims": rng.choice((1, 2, 3)), "block_size": rng.choice((1, 2, 4))}


def plain(sizes: Mapping[str, int], *operations: Operation) -> History:
    """A history in a world of these sizes."""
    return History.of({**sizes, "seed": 1}, *operations)


def telling(sizes: Mapping[str, int], *operations: Operation) -> History:
    """The same with these sizes, from whose answers a thought is told."""
    return plain({**sizes, TELLING: 1}, *operations)


ONE_ELEMENT = {"num_kv_heads": 2, "num_groups": 2, "num_dims": 1}
FOUR_HEADS = {"num_kv_heads": 2, "num_groups": 2, "num_dims": 5}
ONE_HEAD = {"num_kv_heads": 1, "num_groups": 1, "num_dims": 1, "block_size": 2}
ALONE = {"num_kv_heads": 1, "num_groups": 1, "num_dims": 3, "block_size": 2}
ONE_GROUP = {"num_kv_heads": 1, "num_groups": 2, "num_dims": 3, "block_size": 2}
TWO_GROUPS = {"num_kv_heads": 2, "num_groups": 2, "num_dims": 3, "block_size": 2}
PLAIN, TOKENS_FIRST = ("usual", None), LAYOUTS[0]
