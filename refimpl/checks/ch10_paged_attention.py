"""Chapter 10: attention through a block table, from gathering to a kernel.

Every operation is one call on tensors made for it. The account is in `attention_account`: sums over lists, in double
precision, and beside each the numbers that a wrong thought would give, by which the thought is told. What must not be
read holds NaN. torch is loaded when a check runs.
"""

from __future__ import annotations

import inspect
import random
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from refimpl.checks.attention_account import (
    INFINITY,
    LAYOUTS,
    NAN,
    ROW_SIZES,
    Paged,
    State,
    Tokens,
    exp,
    finite,
    merged,
    rounded,
    said_kind,
    said_sizes,
    same,
)
from refimpl.checks.attention_thoughts import (
    Thought,
    apart,
    gather_thoughts,
    gives_part,
    kernel_thoughts,
    merge_thoughts,
    online_thoughts,
    recognised,
    state_thoughts,
)
from refimpl.checks.step import History, LoadedLater, Log, Operation, Setup, Step, World, counted, show

TENSOR = "returns a float32 tensor of the right shape"
KEEPS = "what it was given stays as it was"

SLOTS = "each token is read from the slot that the table names"
TAIL = "the empty end of the last block is left out"
PADDING = "entries behind the last block are not used"
NO_ROWS = "no tokens give no rows"
STRIDED = "a cache of any strides is read"

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
ONE_BLOCK = "no more than a block's scores at a time"

ONE_PART = "sequences of one part are right"
MANY_PARTS = "parts are merged rightly"
EACH_ITS_OWN = "each sequence has its own length and its own row of the table"
NO_CONTEXT = "a sequence without tokens gives 0"
SPLIT = "no softmax goes over more than a part"

KV_HEAD = "each query head reads the KV head of its group"
ANY_STRIDES = "elements are found by the strides"

TELLING = "telling"  # in the setup of an example, from whose answers a thought is told
KINDS = ("usual", "usual", "equal", "high", "low", "rising", "falling", "apart")
LARGE_KINDS = KINDS[3:]
SCALES = (None, None, 0.3, 1.5)
CALLS = 3  # in a random history
SEEDS = 10**6


def _changed(tensors: Sequence[Any], before: Sequence[Any]) -> bool:
    """Whether a tensor is no longer what it was, NaN in the same places."""
    return any(
        tensor.shape != was.shape or not bool(((tensor == was) | (tensor.isnan() & was.isnan())).all())
        for tensor, was in zip(tensors, before, strict=True)
    )


class _CallsWorld(World):
    """A function; each operation is one call on tensors of its own, of sizes that are the world's."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.subject, self.setup, self.log = subject, setup, log
        self.calls = 0
        self.answered = False  # rightly; before that, an error or NaN tells no thought

    def possible(self, operation: Operation) -> bool:
        return True

    def choices(self) -> Iterable[Operation]:
        if self.calls < CALLS:
            rng = random.Random(f"{self.setup['seed']}/{self.calls}")
            yield from (self.any_call(rng) for _ in range(3))

    def perform(self, operation: Operation) -> None:
        self.calls += 1
        self.ask(*operation[1:])
        self.answered = True

    def any_call(self, rng: random.Random) -> Operation:
        """A random operation."""
        raise NotImplementedError

    def ask(self, *arguments: Any) -> None:
        """Call the learner's function and compare."""
        raise NotImplementedError

    def insist_on_tensor(self, name: str, what: str, got: Any, shape: tuple[int, ...], told: str | None = None) -> None:
        """The property `name`: this is a float32 tensor of this shape."""
        import torch

        should = f"{what} should be a float32 tensor of shape {list(shape)}"
        is_tensor = isinstance(got, torch.Tensor)
        but = f"it has shape {list(got.shape)} and dtype {got.dtype}" if is_tensor else f"it is {_kind(got)}"
        fits = is_tensor and tuple(got.shape) == shape and got.dtype == torch.float32
        self.log.hold(name, fits, should, but, told, got=but)


def _kind(got: Any) -> str:
    if got is None or isinstance(got, (int, float)):
        return show(got)
    return f"a {type(got).__name__}{f' of {len(got)}' if isinstance(got, (list, tuple)) else ''}"


# 10-gather


class _GatherWorld(_CallsWorld):
    """A cache in which every slot holds its number, and a block table."""

    def possible(self, operation: Operation) -> bool:
        _, table, num_tokens, _ = operation
        needed = -(-num_tokens // self.setup["block_size"])
        return needed <= len(table) and all(block < self.setup["num_blocks"] for block in table[:needed])

    def any_call(self, rng: random.Random) -> Operation:
        num_blocks, size = self.setup["num_blocks"], self.setup["block_size"]
        table = rng.sample(range(num_blocks), rng.randint(1, min(num_blocks, 4)))
        num_tokens = rng.choice((len(table) * size, rng.randint(0, len(table) * size)))
        padding = rng.choice(((), (), (0, 1), (999_999,)))
        return "gather", (*table, *padding), num_tokens, rng.choice(LAYOUTS)

    def ask(self, *arguments: Any) -> None:
        import torch

        from refimpl.checks.attention_inputs import NOT_A_BLOCK, numbered_cache

        table, num_tokens, layout = arguments
        setup, size = self.setup, self.setup["block_size"]
        sizes = setup["num_blocks"], size, setup["num_kv_heads"], setup["num_dims"]
        cache = numbered_cache(*sizes, layout)
        before = cache.clone()
        names = ("num_blocks", "block_size", "num_kv_heads", "head_dim")
        given = said_sizes(names, sizes) + ("" if layout == LAYOUTS[0] else f", layout={layout!r}")
        self.log.note(f"cache = numbered_cache({given})    # slot s holds s, s.01 …")
        raises: tuple[type[Exception], str] | None = None
        telling = TELLING in setup
        if telling and self.answered and NOT_A_BLOCK in table:
            raises = (IndexError, "padding-read")
        elif telling and self.answered and layout != LAYOUTS[0]:
            raises = (RuntimeError, "takes-a-view")
        entries = f"{list(table)}" if table else "[], dtype=torch.int64"
        line = f"gather(cache, torch.tensor({entries}), {num_tokens})"
        block_table = torch.tensor(table, dtype=torch.int64)
        got = self.log.call(line, self.subject, cache, block_table, num_tokens, raises=raises)
        shape = (num_tokens, *sizes[2:])
        right = [table[t // size] * size + t % size for t in range(num_tokens)]
        told = {"tokens": counted(num_tokens, "token"), "size": size}
        rows = got.shape[0] if isinstance(got, torch.Tensor) and got.dim() == 3 else 0
        first = got[:, 0, 0].tolist() if rows and got.numel() else []
        slots = [round(number) for number in first] if finite(first) else []
        if telling and isinstance(got, torch.Tensor):
            name = recognised(gather_thoughts(got, slots, right, table, size))
            if name is not None:
                self._tell(name, right, slots, told)
        self.insist_on_tensor(TENSOR, "the result", got, shape, "nothing-returned" if got is None else None)
        rows_right = [before[slot // size, slot % size].tolist() for slot in right]
        wrong = next((t for t, row in enumerate(rows_right) if not same(got[t].tolist(), row)), None)
        in_part = _gather_property(num_tokens, size, len(table), layout)
        should = but = ""
        if wrong is not None:
            should = f"row {wrong} should be slot {right[wrong]}, {rounded(rows_right[wrong])}"
            but = f"it is {rounded(got[wrong].tolist())}"
        self.log.hold(in_part, wrong is None, should, but)
        if num_tokens:
            self.log.hold(KEEPS, not _changed([cache], [before]), "the cache should stay as it was", "it has changed")

    def _tell(self, name: str, right: list[int], slots: list[int], told: dict[str, Any]) -> None:
        first = next((t for t, (a, b) in enumerate(zip(right, slots, strict=False)) if a != b), None)
        if first is not None:
            told |= {"position": first, "slot": right[first], "got": slots[first]}
        self.log.hold(
            TAIL if name in ("tail-left-out", "whole-blocks") else SLOTS,
            False,
            f"the rows should be the slots {right}",
            f"they are {slots}",
            name,
            rows=counted(len(slots), "row"),
            block=right[0] // told["size"],
            **told,
        )


def _gather_property(num_tokens: int, size: int, entries: int, layout: str) -> str:
    """What a call of this kind is about most."""
    if num_tokens == 0:
        return NO_ROWS
    if entries > -(-num_tokens // size):
        return PADDING
    if layout != LAYOUTS[0]:
        return STRIDED
    return TAIL if num_tokens % size else SLOTS


# States: what 10-gqa and 10-online-softmax compare


class _StateWorld(_CallsWorld):
    """A function that returns the output and lse of every head, for one query token."""

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
        is_pair = isinstance(got, (tuple, list)) and len(got) == 2
        self.log.hold(PAIR, is_pair, "it should return output and lse", f"it returned {_kind(got)}", told)
        self.insist_on_tensor(PAIR, "the output", got[0], (heads, tokens.head_dim))
        self.insist_on_tensor(PAIR, "lse", got[1], (heads,))
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
                misconception = None if right or TELLING not in self.setup else recognised(thoughts(output, lse))
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

    def check_kept(self, tensors: Sequence[Any], before: Sequence[Any]) -> None:
        """The learner's function has left its arguments alone."""
        should = "the tensors that it was given should stay as they were"
        self.log.hold(KEEPS, not _changed(tensors, before), should, "one has changed")


# 10-gqa


class _AttendWorld(_StateWorld):
    """Tokens in a row."""

    def any_call(self, rng: random.Random) -> Operation:
        num_tokens = rng.choice((0, 1, 2, 3, 5, 8))
        return "attend", num_tokens, rng.choice(KINDS), rng.choice(SCALES), rng.randrange(SEEDS)

    def ask(self, *arguments: Any) -> None:
        from refimpl.checks.attention_inputs import in_a_row

        num_tokens, kind, scale, seed = arguments
        setup = self.setup
        sizes = (num_tokens, setup["num_kv_heads"], setup["num_groups"], setup["num_dims"])
        query, keys, values = tensors = in_a_row(*sizes, kind, seed)
        before = [tensor.clone() for tensor in tensors]
        tokens = Tokens(query.tolist(), keys.tolist(), values.tolist(), scale, setup["num_kv_heads"])
        given = f"{said_sizes(('num_tokens', *ROW_SIZES), sizes)}{said_kind(kind)}, seed={seed}"
        self.log.note(f"query, keys, values = in_a_row({given})")
        line = f"attend(query, keys, values{_scale(scale)})"
        raises = (Exception, "no-tokens-forgotten") if self.answered and not num_tokens else None
        got = self.log.call(line, lambda: self.subject(query, keys, values, **_given(scale)), raises=raises)
        in_part = AVERAGE
        if not num_tokens:
            in_part = NOTHING
        elif kind in LARGE_KINDS:
            in_part = LARGE
        elif scale is not None:
            in_part = SCALE
        elif tokens.group > 1 and tokens.num_kv_heads > 1:
            in_part = GROUPS

        def thoughts(output: Any, lse: Any) -> Iterator[Thought]:
            broken = not (finite(output) and finite(lse))
            if self.answered:
                yield "no-tokens-forgotten", lambda: not num_tokens
                yield "no-maximum-taken", lambda: kind in ("high", "low") and broken
                yield "one-maximum-for-all-heads", lambda: kind == "apart" and _vanished(output)
            if num_tokens and kind in ("usual", "equal"):
                yield from state_thoughts(tokens, kind, output, lse)

        self.compare(got, tokens, in_part, thoughts)
        if num_tokens:
            self.check_kept(tensors, before)


def _vanished(output: Any) -> bool:
    """Whether some head's exponentials were out of range: its output is not finite, or 0 throughout."""
    return not finite(output) or not all(map(any, output))


def _scale(scale: float | None) -> str:
    return "" if scale is None else f", scale={scale}"


def _given(scale: float | None) -> dict[str, Any]:
    return {} if scale is None else {"scale": scale}


def _row_sizes(rng: random.Random) -> Setup:
    return {
        "num_kv_heads": rng.choice((1, 2, 3)),
        "num_groups": rng.choice((1, 2, 3)),
        "num_dims": rng.choice((1, 2, 4)),
        "seed": rng.randrange(1, SEEDS),
    }


# Blocks: what the rest reads


# 10-online-softmax


class _BlocksWorld(_StateWorld):
    """One sequence in blocks."""

    def any_call(self, rng: random.Random) -> Operation:
        size = self.setup["block_size"]
        context_len = rng.choice((0, 1, size, 2 * size, 2 * size + 1, 12 * size, rng.randint(1, 4 * size)))
        return (
            "attend_in_blocks",
            context_len,
            rng.choice(KINDS),
            rng.choice(SCALES),
            rng.randrange(SEEDS),
            rng.choice(LAYOUTS),
        )

    def ask(self, *arguments: Any) -> None:
        context_len, kind, scale, seed, layout = arguments
        neighbours = [context_len] * self.setup.get("neighbours", 0)
        paged = Paged([context_len, *neighbours], self.setup, kind, scale, seed, layout)
        tokens, size = paged.tokens(0), self.setup["block_size"]
        query, key_cache, value_cache, tables, _ = paged.tensors
        self.log.note(paged.line)
        line = f"attend_in_blocks(query[0], key_cache, value_cache, block_tables[0], {context_len}{_scale(scale)})"
        got, longest = self._call(line, paged, context_len, scale)
        many = context_len > size
        in_part = BLOCKS
        if not context_len:
            in_part = NOTHING
        elif kind in LARGE_KINDS:
            in_part = LARGE
        elif scale is not None:
            in_part = SCALE
        elif tokens.group > 1 and tokens.num_kv_heads > 1:
            in_part = GROUPS
        elif context_len % size:
            in_part = PART_FULL
        elif many:
            in_part = MANY_BLOCKS

        def thoughts(output: Any, lse: Any) -> Iterator[Thought]:
            broken = not (finite(output) and finite(lse))
            if self.answered:
                yield "no-tokens-forgotten", lambda: not context_len
                yield "no-maximum-taken", lambda: kind == "high" and broken
                yield "one-maximum-for-all-heads", lambda: kind == "apart" and _vanished(output)
                yield "first-maximum-kept", lambda: kind == "rising" and broken
                yield "largest-of-the-block", lambda: kind == "falling" and broken
                yield "maximum-starts-at-zero", lambda: kind == "low" and _vanished(output)
                yield "tail-read", lambda: kind == "usual" and bool(context_len % size) and broken
            if not context_len or broken or kind not in ("usual", "equal"):
                return
            in_order = paged.tokens(0, table=range(len(paged.keys)))
            yield "logical-for-physical", lambda: same(output, apart(in_order.states())[0])
            yield from online_thoughts(tokens, size, output)
            yield "full-blocks-only", lambda: many and gives_part(tokens, context_len // size * size, output)
            yield from state_thoughts(tokens, kind, output, lse)

        self.compare(got, tokens, in_part, thoughts)
        if context_len >= 12 * size:
            self.log.hold(
                ONE_BLOCK,
                longest <= context_len // 2,
                f"exponentials should be taken of a block's {counted(size, 'score')} at a time",
                f"they were taken of {longest} at a time",
                "whole-row-kept",
                longest=longest,
                size=size,
            )
        if context_len:
            self.check_kept(paged.tensors, paged.before)

    def _call(self, line: str, paged: Paged, context_len: int, scale: float | None) -> Any:
        from refimpl.checks.attention_inputs import NOT_A_BLOCK, LongestRow

        query, key_cache, value_cache, tables, _ = paged.tensors
        raises: tuple[type[Exception], str] | None = None
        if self.answered and not context_len:
            raises = (Exception, "no-tokens-forgotten")
        elif self.answered and TELLING in self.setup and NOT_A_BLOCK in paged.tables[0]:
            raises = (IndexError, "padding-read")
        with LongestRow() as row:
            got = self.log.call(
                line,
                lambda: self.subject(query[0], key_cache, value_cache, tables[0], context_len, **_given(scale)),
                raises=raises,
            )
        return got, row.length


def _block_sizes(rng: random.Random) -> Setup:
    return {**_row_sizes(rng), "num_dims": rng.choice((1, 2, 3)), "block_size": rng.choice((1, 2, 4))}


# 10-merge


class _BatchWorld(_CallsWorld):
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
        outputs = got.tolist()
        for seq, context_len in enumerate(paged.context_lens):
            tokens = paged.tokens(seq)
            for head, state in enumerate(tokens.states()):
                right = same(outputs[seq][head], state.output)
                name = None if right or TELLING not in self.setup else recognised(thoughts(seq, outputs[seq], outputs))
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
            should = "the tensors that it was given should stay as they were"
            self.log.hold(KEEPS, not _changed(paged.tensors, paged.before), should, "one has changed")

    def some_lengths(self, rng: random.Random) -> tuple[int, ...]:
        """Lengths of one to three sequences."""
        size = self.setup["block_size"]
        lengths = (0, 1, size, 2 * size + 1, rng.randint(1, 4 * size), rng.randint(1, 4 * size))
        return tuple(rng.choice(lengths) for _ in range(rng.choice((1, 2, 3))))


class _MergeWorld(_BatchWorld):
    """Attention in parts that are merged; and the merge by itself, where the learner's function calls one."""

    def possible(self, operation: Operation) -> bool:
        return operation[0] == "paged_attention" or _called_by(self.subject, operation[0]) is not None

    def perform(self, operation: Operation) -> None:
        if operation[0] == "paged_attention":
            super().perform(operation)
        else:
            self.merge(_called_by(self.subject, operation[0]), *operation[1:])

    def merge(self, function: Any, *lses: float) -> None:
        """Compare the merge of two parts, each of one head with one element."""
        import torch

        parts = [
            State([0.0 if lse == -INFINITY else output], lse) for lse, output in zip(lses, (3.0, 14.0), strict=True)
        ]
        outputs, of_parts = torch.tensor([[part.output] for part in parts]), torch.tensor(lses).view(-1, 1)
        right, largest = merged(parts), max(lses)
        self.log.note(f"outputs, lses = torch.tensor({outputs.tolist()}), torch.tensor({list(lses)}).view(2, 1)")
        got = self.log.call("merge_attention_states(outputs, lses)", function, outputs, of_parts)
        is_pair = isinstance(got, (tuple, list)) and len(got) == 2
        self.log.hold(
            MANY_PARTS, is_pair, "it should return output and lse", f"it returned {_kind(got)}", "lse-not-returned"
        )
        self.insist_on_tensor(MANY_PARTS, "the output", got[0], (1, 1))
        self.insist_on_tensor(MANY_PARTS, "lse", got[1], (1,))
        output, lse = got[0].item(), got[1].item()
        name, told = MANY_PARTS, None
        if largest == -INFINITY:
            name, told = NO_CONTEXT, "no-tokens-forgotten"
        elif not finite([output, lse]):
            name, told = LARGE, "weights-overflow" if largest > 100 else None
        self.log.hold(
            name,
            same(output, right.output[0]),
            f"output[0, 0] should be {rounded(right.output[0])}",
            f"it is {rounded(output)}",
            told,
        )
        if same(lse, right.lse - largest):
            told = "lse-without-the-maximum"
        self.log.hold(
            name,
            same(lse, right.lse),
            f"lse[0] should be {rounded(right.lse)}",
            f"it is {rounded(lse)}",
            told,
            largest=rounded(largest),
        )

    def any_call(self, rng: random.Random) -> Operation:
        lengths, part = rng.choice((self.some_lengths(rng), (24,))), rng.choice((1, 2, 3, 4, None))
        kind, scale = rng.choice(KINDS), rng.choice(SCALES)
        return "paged_attention", lengths, kind, scale, part, rng.randrange(SEEDS), rng.choice(LAYOUTS)

    def ask(self, *arguments: Any) -> None:
        from refimpl.checks.attention_inputs import NOT_A_BLOCK, LongestRow

        lengths, kind, scale, part, seed, layout = arguments
        paged = Paged(lengths, self.setup, kind, scale, seed, layout)
        self.log.note(paged.line)
        options = {**_given(scale), **({} if part is None else {"partition_size": part})}
        words = "".join(f", {name}={value}" for name, value in options.items())
        line = f"paged_attention(query, key_cache, value_cache, block_tables, context_lens{words})"
        raises: tuple[type[Exception], str] | None = None
        if self.answered and not all(lengths):
            raises = (Exception, "no-tokens-forgotten")
        elif self.answered and TELLING in self.setup and any(NOT_A_BLOCK in table for table in paged.tables):
            raises = (IndexError, "padding-read")
        with LongestRow() as row:
            got = self.log.call(line, lambda: self.subject(*paged.tensors, **options), raises=raises)
        size = max(lengths) if part is None else part

        def property_of(seq: int) -> str:
            if not lengths[seq]:
                return NO_CONTEXT
            if scale is not None:
                return SCALE
            if kind in LARGE_KINDS:
                return LARGE
            if len(set(lengths)) > 1:
                return EACH_ITS_OWN
            return MANY_PARTS if lengths[seq] > size else ONE_PART

        def thoughts(seq: int, output: Any, outputs: Any) -> Iterator[Thought]:
            broken = not finite(output)
            if self.answered:
                yield "no-tokens-forgotten", lambda: not lengths[seq]
                yield "weights-overflow", lambda: kind in ("high", "low", "rising") and broken
                yield "one-maximum-for-all-heads", lambda: kind == "apart" and _vanished(output)
                yield "one-length-for-all", lambda: kind == "usual" and lengths[seq] < max(lengths) and broken
            if lengths[seq] and kind in ("usual", "equal") and not broken:
                yield from merge_thoughts(paged, seq, output, size)

        parts = -(-max(lengths) // size) if size else 0
        self.compare(got, paged, property_of, thoughts, parts=counted(parts, "part"), part=size)
        if part is not None and len(lengths) == 1 and lengths[0] >= 24 and 2 < part <= lengths[0] // 6:
            self.log.hold(
                SPLIT,
                row.length <= lengths[0] // 2,
                f"a softmax should go over a part of {counted(part, 'token')}",
                f"one went over {row.length}",
                "not-split",
                length=row.length,
                part=part,
            )


def _called_by(function: Any, name: str) -> Any:
    """The function of that name which a function's code calls, or None where it calls none."""
    function = inspect.unwrap(function)
    codes = [function.__code__] if isinstance(function, types.FunctionType) else []
    for code in codes:
        if name in code.co_names:
            return function.__globals__.get(name)
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return None


# 10-kernel


class _KernelWorld(_BatchWorld):
    """A kernel, interpreted over float32 tensors that it cannot leave; compiled too, once, where there is CUDA."""

    def choices(self) -> Iterable[Operation]:
        return super().choices() if not self.calls else ()

    def any_call(self, rng: random.Random) -> Operation:
        size = self.setup["block_size"]
        lengths = rng.choice(((size,), (size + 1,), (2 * size,), (2 * size - 1,), (0, 1)))
        seed = rng.randrange(SEEDS)
        if rng.random() < 0.5:
            return _programs(*lengths, seed=seed)
        kind, scale = rng.choice(KINDS), rng.choice(SCALES)
        return _programs(*lengths, seed=seed, kind=kind, scale=scale, layout=rng.choice(LAYOUTS))

    def ask(self, *arguments: Any) -> None:
        import torch

        from refimpl.device.plain_kernel import run_kernel

        lengths, kind, scale, seed, layout = arguments
        raw = getattr(self.subject, "fn", self.subject)
        if raw in REFERENCE_KERNELS:
            raw()  # refused, as refimpl's own code is during a check
        paged = Paged(lengths, self.setup, kind, scale, seed, layout)
        self.log.note(paged.line)
        line = f"run_kernel(decode_kernel, query, key_cache, value_cache, block_tables, context_lens{_scale(scale)})"
        got = self.log.call(
            line,
            lambda: run_kernel(self.subject, *paged.tensors, scale=scale),
            raises=(IndexError, "leaves-the-tensors") if TELLING in self.setup else None,
        )

        def property_of(seq: int) -> str:
            context_len = lengths[seq]
            if not context_len:
                return NO_CONTEXT
            if kind in LARGE_KINDS:
                return LARGE
            if scale is not None:
                return SCALE
            if layout != LAYOUTS[0]:
                return ANY_STRIDES
            if self.setup["num_kv_heads"] > 1:
                return KV_HEAD
            if context_len % self.setup["block_size"]:
                return PART_FULL
            return MANY_BLOCKS if context_len > self.setup["block_size"] else BLOCKS

        def thoughts(seq: int, output: Any, outputs: Any) -> Iterator[Thought]:
            if self.answered:
                broken, context_len = not finite(output), lengths[seq]
                yield "no-maximum-taken", lambda: kind == "high" and broken
                yield "first-maximum-kept", lambda: kind == "rising" and broken
                yield "largest-of-the-block", lambda: kind == "falling" and broken
                yield "maximum-starts-at-zero", lambda: kind == "low" and _vanished(output)
                ends_inside = context_len % self.setup["block_size"] != 0
                yield "unused-slots-read", lambda: kind == "usual" and ends_inside and broken
            if kind in ("usual", "equal") and finite(output):
                yield from kernel_thoughts(paged, seq, output, layout)

        self.compare(got, paged, property_of, thoughts)
        if "compiled" in self.setup and torch.cuda.is_available():
            self.log.note("# the same once more, compiled for the GPU")
            query, keys, values, tables, lens = (tensor.cuda() for tensor in paged.tensors)
            got = self.log.call(line, lambda: run_kernel(self.subject, query, keys, values, tables, lens, scale))
            self.compare(got.cpu(), paged, property_of, thoughts)


REFERENCE_KERNELS = LoadedLater("device.plain_kernel:decode_kernel")


def _why_not() -> str | None:
    from refimpl.device.plain_kernel import why_no_kernel_runs

    return why_no_kernel_runs()


def _kernel_sizes(rng: random.Random) -> Setup:
    kv_heads, groups = rng.choice(((1, 1), (1, 1), (1, 2), (2, 1)))
    return {**_block_sizes(rng), "num_kv_heads": kv_heads, "num_groups": groups}


def _plain(sizes: Mapping[str, int], *operations: Operation) -> History:
    return History({**sizes, "seed": 1}, operations)


def _telling(sizes: Mapping[str, int], *operations: Operation) -> History:
    return History({**sizes, "seed": 1, TELLING: 1}, operations)


def _cache_sizes(rng: random.Random) -> Setup:
    return {
        "num_blocks": rng.choice((1, 3, 8)),
        "block_size": rng.choice((1, 2, 4)),
        "num_kv_heads": rng.choice((1, 2)),
        "num_dims": rng.choice((1, 3)),
        "seed": rng.randrange(1, SEEDS),
    }


def _in_blocks(
    context_len: int, *, seed: int, kind: str = "usual", scale: float | None = None, layout: str = LAYOUTS[0]
) -> Operation:
    return "attend_in_blocks", context_len, kind, scale, seed, layout


def _batch(
    *lengths: int,
    seed: int,
    kind: str = "usual",
    scale: float | None = None,
    part: int | None = None,
    layout: str = LAYOUTS[0],
) -> Operation:
    return "paged_attention", lengths, kind, scale, part, seed, layout


def _two_parts(first_lse: float, second_lse: float) -> Operation:
    return "merge_attention_states", first_lse, second_lse


def _programs(
    *lengths: int, seed: int, kind: str = "usual", scale: float | None = None, layout: str = LAYOUTS[0]
) -> Operation:
    return "decode_kernel", lengths, kind, scale, seed, layout


SLOT_EACH = {"num_blocks": 8, "block_size": 4, "num_kv_heads": 1, "num_dims": 1}
WIDE = {**SLOT_EACH, "num_kv_heads": 2, "num_dims": 3}
ONE_ELEMENT = {"num_kv_heads": 2, "num_groups": 2, "num_dims": 1}
FOUR_HEADS = {"num_kv_heads": 2, "num_groups": 2, "num_dims": 4}
ONE_HEAD = {"num_kv_heads": 1, "num_groups": 1, "num_dims": 1, "block_size": 2}
ALONE = {"num_kv_heads": 1, "num_groups": 1, "num_dims": 3, "block_size": 2}
ONE_GROUP = {"num_kv_heads": 1, "num_groups": 2, "num_dims": 3, "block_size": 2}
TWO_GROUPS = {"num_kv_heads": 2, "num_groups": 2, "num_dims": 3, "block_size": 2}
ONE_PAIR = {"num_kv_heads": 1, "num_groups": 2, "num_dims": 1, "block_size": 4}
TWO_PARTS = ((1.0, 0.0), (-INFINITY, 1.0), (100.0, 101.0), (-INFINITY, -INFINITY))  # their lses
PLAIN, TOKENS_FIRST = ("usual", None), LAYOUTS[0]

# What several steps have to say of a softmax and its scores.
_OF_SCORES = {
    "nothing-returned": "The caller needs output and lse: yours returned None.",
    "lse-not-returned": "An output alone cannot be merged with another part's later: return the pair, output and lse.",
    "no-tokens-forgotten": "Of no tokens there is no largest score, and a sum of nothing is 0: the output is 0 and lse "
    "is -inf, where a maximum or a division needs a token.",
    "no-maximum-taken": "exp(89) is more than float32 can hold and exp(-104) is 0, and scores go beyond both: take the "
    "largest score off all of them first, which changes no weight.",
    "one-maximum-for-all-heads": "Each head has a largest score of its own: where one was taken off all heads, those "
    "that lie hundreds below it are left with exponentials that are all 0.",
    "heads-dealt-out": "The heads of a group are neighbours: of {heads} query heads head {head} reads KV head {head} "
    "// {group} = {kv_head}, and yours dealt the KV heads out in turn.",
    "one-kv-head-for-all": "There are {kv_heads} KV heads, one for each {group} query heads: head {head} reads KV head "
    "{kv_head}, and yours read KV head 0 for all.",
    "own-scale-for-the-given": "The caller gave scale={scale}: the root of head_dim is for callers who give none.",
    "scaled-twice": "A scale that is given is the whole factor: yours multiplied by {scale} and by one over the root "
    "of {head_dim} as well.",
    "not-scaled": "A score is the product of query and key times the scale, which is one over the root of head_dim "
    "{head_dim} when none is given: yours is the product alone.",
    "scaled-up": "Products grow with head_dim, and the scale is there to undo it: divide by the root of {head_dim}, "
    "where yours multiplied by it.",
    "scaled-without-the-root": "The scale is one over the *root* of head_dim: with {head_dim} elements that is not "
    "1/{head_dim}.",
    "keys-and-values-swapped": "Keys are what a query is compared with, values are what is averaged: yours has the two "
    "the wrong way round.",
    "softmax-over-heads": "A query head asks how much of its attention each *token* gets: its weights add up to 1 over "
    "the tokens, and yours add up over heads.",
    "not-divided": "The weights of a softmax add up to 1: divide by the sum of the exponentials, where yours is the "
    "sum of the weighted values.",
    "lse-without-the-maximum": "What was taken off the scores belongs to lse: add the largest score, {largest}, to the "
    "logarithm of the sum.",
    "lse-is-the-maximum": "lse is the logarithm of the sum over all tokens, and not the largest score alone: it is "
    "{should} here, and yours is {got}.",
    "lse-is-the-sum": "lse is the *logarithm* of the sum of exp(score), {should} here, and yours is a sum.",
}
_OF_BLOCKS = {
    "logical-for-physical": "Block 0 of the sequence lies in block block_table[0] of the cache: yours took the index "
    "in the table for the number of the block, and read slots that hold nothing.",
    "full-blocks-only": "The last block counts as well when it is only partly filled: yours left out the tokens in it.",
    "padding-read": "Behind a sequence's last block its table may hold anything: yours looked one of those entries up, "
    "so count the blocks that the tokens need.",
    "maximum-starts-at-zero": "Before the first token the largest score is -inf: a maximum that starts at 0 wins over "
    "scores below 0, and their exponentials vanish.",
    "largest-of-the-block": "The largest score so far may be an older block's: yours took the newest block's for it, "
    "and exp(old - new) overflows where scores fall.",
    "first-maximum-kept": "The largest score so far may grow with every block: yours kept that of the first one, and "
    "the exponentials of later scores overflow.",
    "sum-not-rescaled": "When the largest score grows, all that was added up under the old one shrinks by exp(old - "
    "new): yours did so to the output and not to the sum.",
    "output-not-rescaled": "When the largest score grows, all that was added up under the old one shrinks by exp(old - "
    "new): yours did so to the sum and not to the output.",
    "nothing-rescaled": "Sum and output were added up under an older largest score: multiply both by exp(old - new) "
    "before you add, and keep the old one until then.",
    "rescaled-upside-down": "The factor is exp(old - new), at most 1: yours is its inverse, and blows up what should "
    "shrink.",
    "divided-every-time": "Divide by the sum once, behind the last block: an output that is divided in between no "
    "longer stands under the same sum as the next block's weights.",
    "last-block-alone": "Each block is added to what the ones before it gave: yours is the answer of the last block "
    "alone.",
}
_OF_THE_BATCH = {
    "nothing-returned": "The caller needs the outputs of all sequences: yours returned None.",
    "one-row-for-all": "Each sequence has a block table of its own: sequence {seq} reads by row {seq}, and yours read "
    "by row 0.",
}

STEPS = (
    Step(
        exercise_id="10-gather",
        title="a sequence's tokens, in their order",
        points=1,
        subject="gather",
        reference=LoadedLater("device.attention:gather", "device.attention:gathered_attention"),
        properties=(TENSOR, SLOTS, TAIL, PADDING, NO_ROWS, STRIDED, KEEPS),
        misconceptions={
            "nothing-returned": "The caller needs the tokens: yours returned None.",
            "blocks-not-joined": "The caller wants tokens, one a row: put the blocks end to end, so that two axes "
            "become one.",
            "tail-left-out": "The last block counts as well when it is only partly filled: {tokens} in blocks of "
            "{size} were asked for, and yours returned {rows}.",
            "whole-blocks": "Behind the last token its block holds nothing, or another's old tokens: {tokens} were "
            "asked for, and yours returned {rows}.",
            "newest-token-left-out": "All {tokens} lie in the cache, the newest one too: yours returned {rows}.",
            "logical-for-physical": "The tokens begin in block block_table[0], which is block {block} here: yours took "
            "position {position} for a slot, and the table names slot {slot}.",
            "number-not-multiplied": "Before block {block} lie {block} others of {size} slots each: position "
            "{position} is slot {slot}, and yours read slot {got}.",
            "runs-on-in-memory": "Where one block ends the next may begin anywhere: position {position} is slot "
            "{slot}, and yours ran on to slot {got}.",
            "order-of-memory": "The order of the text is the order of the table: position {position} is slot {slot}, "
            "and yours went through the blocks by their numbers.",
            "first-block-for-all": "Each block of the text has its own entry in the table: position {position} is slot "
            "{slot}, and yours read slot {got}, in the first block once more.",
            "one-position-on": "Positions count from 0: position {position} is slot {slot}, and yours read slot {got}, "
            "which is the next one's.",
            "padding-read": _OF_BLOCKS["padding-read"],
            "takes-a-view": "In this cache the slots of a head lie together, so the axes of block and slot cannot be "
            "made one without copying, and torch refused: a view never copies.",
        },
        world=_GatherWorld,
        examples=(
            _telling(SLOT_EACH, ("gather", (5, 2), 6, TOKENS_FIRST)),
            _telling(SLOT_EACH, ("gather", (6, 1, 3), 12, TOKENS_FIRST)),
            _telling(SLOT_EACH, ("gather", (6, 1, 3), 11, TOKENS_FIRST)),
            _plain(SLOT_EACH, ("gather", (3,), 1, TOKENS_FIRST)),
            _telling(SLOT_EACH, ("gather", (5, 2, 7), 8, TOKENS_FIRST)),
            _telling(SLOT_EACH, ("gather", (5, 2), 8, TOKENS_FIRST), ("gather", (5, 2, 999_999), 8, TOKENS_FIRST)),
            _telling(WIDE, ("gather", (5, 2), 8, TOKENS_FIRST), ("gather", (5, 2), 6, "heads first")),
            _plain(SLOT_EACH, ("gather", (5,), 0, TOKENS_FIRST), ("gather", (), 0, TOKENS_FIRST)),
        ),
        setups=_cache_sizes,
    ),
    Step(
        exercise_id="10-gqa",
        title="one query, shared KV heads",
        points=2,
        subject="attend",
        reference=LoadedLater(
            "device.plain_attention:attend",
            "device.plain_attention:attend_in_blocks",
            "device.attention:gathered_attention",
        ),
        properties=(PAIR, AVERAGE, GROUPS, SCALE, LSE, LARGE, NOTHING, KEEPS),
        misconceptions=_OF_SCORES,
        world=_AttendWorld,
        examples=(
            _telling(ONE_ELEMENT, ("attend", 2, "equal", None, 0)),
            _telling({**FOUR_HEADS, "num_groups": 1}, ("attend", 3, *PLAIN, 2)),
            _telling(FOUR_HEADS, ("attend", 5, *PLAIN, 4)),
            _telling(FOUR_HEADS, ("attend", 4, "usual", 0.3, 3), ("attend", 4, "usual", 0.0, 3)),
            _telling({**FOUR_HEADS, "num_kv_heads": 1}, ("attend", 4, *PLAIN, 5)),
            _plain(FOUR_HEADS, ("attend", 1, *PLAIN, 6)),
            _telling(FOUR_HEADS, ("attend", 2, *PLAIN, 6), ("attend", 3, "high", None, 7)),
            _telling(FOUR_HEADS, ("attend", 2, *PLAIN, 6), ("attend", 3, "low", None, 8)),
            _telling(FOUR_HEADS, ("attend", 2, *PLAIN, 6), ("attend", 3, "apart", None, 8)),
            _telling(FOUR_HEADS, ("attend", 2, *PLAIN, 6), ("attend", 0, *PLAIN, 9)),
        ),
        setups=_row_sizes,
    ),
    Step(
        exercise_id="10-online-softmax",
        title="one block at a time",
        points=2,
        subject="attend_in_blocks",
        reference=LoadedLater(
            "device.plain_attention:attend_in_blocks",
            "device.plain_attention:attend",
            "device.attention:gathered_attention",
        ),
        properties=(
            PAIR,
            BLOCKS,
            MANY_BLOCKS,
            PART_FULL,
            GROUPS,
            SCALE,
            LSE,
            LARGE,
            NOTHING,
            ONE_BLOCK,
            KEEPS,
        ),
        misconceptions={
            **{
                name: _OF_SCORES[name]
                for name in (
                    "nothing-returned",
                    "no-tokens-forgotten",
                    "no-maximum-taken",
                    "one-maximum-for-all-heads",
                    "heads-dealt-out",
                    "own-scale-for-the-given",
                    "not-scaled",
                    "not-divided",
                    "lse-without-the-maximum",
                )
            },
            **_OF_BLOCKS,
            "tail-read": "Slots behind the last token hold anything, NaN here, and 0 times NaN is NaN: leave them out, "
            "of the keys and of the values.",
            "blocks-averaged": "A block counts as much as the exponentials of its scores add up to: yours is the plain "
            "average of the blocks' answers.",
            "whole-row-kept": "The point is to need no more than a block's scores at a time, {size} here: yours took "
            "the exponentials of {longest} at once.",
        },
        world=_BlocksWorld,
        examples=(
            _telling(ONE_HEAD, _in_blocks(4, seed=9, kind="equal")),
            _telling({**ONE_GROUP, "neighbours": 1}, _in_blocks(6, seed=1)),
            _telling(TWO_GROUPS, _in_blocks(6, seed=3)),
            _telling(ONE_GROUP, _in_blocks(2, seed=7), _in_blocks(5, seed=5)),
            _telling(ONE_GROUP, _in_blocks(2, seed=7), _in_blocks(4, seed=2)),
            _telling(ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(4, seed=11, kind="high")),
            _telling(ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(6, seed=13, kind="rising")),
            _telling(ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(6, seed=13, kind="falling")),
            _telling(ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(4, seed=15, kind="low")),
            _telling(ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(4, seed=15, kind="apart")),
            _telling(ONE_GROUP, _in_blocks(4, seed=17, scale=0.3), _in_blocks(4, seed=17, scale=0.0)),
            _telling(ONE_GROUP, _in_blocks(2, seed=7), _in_blocks(0, seed=19)),
            _telling(ONE_GROUP, _in_blocks(24, seed=21)),
            _plain(ONE_GROUP, _in_blocks(5, seed=23, layout="heads first")),
        ),
        setups=_block_sizes,
    ),
    Step(
        exercise_id="10-merge",
        title="parts of a context, merged",
        points=2,
        subject="paged_attention",
        reference=LoadedLater(
            "device.plain_attention:paged_attention",
            "device.plain_attention:merge_attention_states",
            "device.online_softmax:merge_attention_states",
            "device.attention:paged_attention",
            "device.attention:decode_attention",
            "device.attention:gathered_attention",
            "device.triton_kernels:paged_attention_triton",
        ),
        properties=(
            TENSOR,
            ONE_PART,
            MANY_PARTS,
            EACH_ITS_OWN,
            SCALE,
            LARGE,
            NO_CONTEXT,
            SPLIT,
            KEEPS,
        ),
        misconceptions={
            **_OF_THE_BATCH,
            "no-tokens-forgotten": "A sequence without tokens has no parts, or empty ones with lse -inf: its row is 0, "
            "so take care of -inf minus -inf, which is NaN, and of an empty list.",
            "padding-read": _OF_BLOCKS["padding-read"],
            "lse-not-returned": _OF_SCORES["lse-not-returned"],
            "lse-without-the-maximum": "What was taken off the lses belongs to the lse of all: add the largest, "
            "{largest}, to the logarithm of the sum.",
            "one-maximum-for-all-heads": "Each head has a largest lse of its own: where one was taken off all heads, "
            "those that lie hundreds below it are left with weights that are all 0.",
            "weights-overflow": "A part weighs exp(lse), and lse may be hundreds above or below 0: take the largest "
            "off all of them first, which changes no share.",
            "parts-averaged": "A part counts as much as the exponentials of its scores add up to, which is exp(lse): "
            "yours is the plain average of {parts}.",
            "weighed-by-length": "What a part weighs depends on its scores and not on its length: the weight is "
            "exp(lse), and yours is the number of tokens.",
            "parts-added-up": "Each part's output is an average already, and so is the whole: the weights of the parts "
            "add up to 1, and yours is the sum of {parts}.",
            "lse-for-a-weight": "lse is the *logarithm* of what a part weighs: the weight is exp(lse), and yours is "
            "lse itself.",
            "weights-not-divided": "The parts' weights must add up to 1: divide each exp(lse) by the sum over the "
            "parts.",
            "weighed-over-heads": "Each head's parts are weighed among themselves: the weights add up to 1 over the "
            "parts, and yours add up over the heads.",
            "last-part-left-out": "The last part counts as well when it is shorter than {part} tokens: of {tokens} "
            "yours left the last ones out.",
            "first-part-alone": "A context of {tokens} has several parts of {part}: yours is the answer of the first "
            "one alone.",
            "last-part-alone": "A context of {tokens} has several parts of {part}: yours is the answer of the last one "
            "alone.",
            "one-length-for-all": "Each sequence has its own length: sequence {seq} has {tokens}, and yours read as "
            "many as another has.",
            "scale-not-passed-on": "The caller gave scale={scale}, and each part needs it: yours took the root of "
            "head_dim instead.",
            "not-split": "The work is to be cut into parts of {part}, each with a softmax of its own: one of yours "
            "went over {length} tokens.",
        },
        world=_MergeWorld,
        examples=(
            _telling(ONE_PAIR, _batch(8, 1, seed=9, kind="equal", part=3)),
            _telling(TWO_GROUPS, _batch(8, seed=1, part=3)),
            _telling(TWO_GROUPS, _batch(5, seed=3)),
            _telling(ONE_GROUP, _batch(2, seed=7), _batch(5, 3, seed=5, part=2)),
            _telling(ONE_GROUP, _batch(2, seed=7), _batch(2, 6, seed=2, part=2)),
            _telling(ONE_GROUP, _batch(4, seed=7, part=2), _batch(6, seed=7, kind="high", part=2)),
            _telling(ONE_GROUP, _batch(4, seed=7, part=2), _batch(6, seed=9, kind="low", part=2)),
            _telling(ONE_GROUP, _batch(4, seed=7, part=2), _batch(6, seed=15, kind="apart", part=2)),
            _telling(ONE_GROUP, _batch(6, seed=11, scale=0.3, part=4), _batch(6, seed=11, scale=0.0, part=4)),
            _telling(ONE_GROUP, _batch(2, seed=7), _batch(4, 0, seed=13, part=2)),
            _telling(ONE_GROUP, _batch(2, seed=7), _batch(0, seed=15)),
            _telling(ONE_HEAD, _batch(24, seed=17, part=4, layout="heads first")),
            *(_telling(ONE_HEAD, _batch(2, seed=7), _two_parts(*lses)) for lses in TWO_PARTS),
        ),
        setups=_block_sizes,
    ),
    Step(
        exercise_id="10-kernel",
        title="the loop of a Triton kernel",
        points=3,
        subject="decode_kernel",
        reference=REFERENCE_KERNELS,
        properties=(
            TENSOR,
            BLOCKS,
            MANY_BLOCKS,
            PART_FULL,
            KV_HEAD,
            SCALE,
            ANY_STRIDES,
            LARGE,
            NO_CONTEXT,
            KEEPS,
        ),
        misconceptions={
            **{
                name: _OF_BLOCKS[name]
                for name in (
                    "logical-for-physical",
                    "full-blocks-only",
                    "maximum-starts-at-zero",
                    "first-maximum-kept",
                    "largest-of-the-block",
                    "sum-not-rescaled",
                    "output-not-rescaled",
                    "nothing-rescaled",
                    "last-block-alone",
                )
            },
            "one-row-for-all": _OF_THE_BATCH["one-row-for-all"],
            "no-maximum-taken": _OF_SCORES["no-maximum-taken"],
            "not-scaled": "A score is the product of query and key times `scale`: yours is the product alone.",
            "leaves-the-tensors": "Nothing stops a wrong index on a GPU, where it reads another's memory or ends the "
            "process; here it was stopped: {error}.",
            "unused-slots-read": "Slots behind the last token hold anything, NaN here, and 0 times NaN is NaN: both "
            "loads need a mask that lets tokens alone through, and other=0.0 for the rest.",
            "unused-slots-counted": "A slot without a token must weigh nothing, and a score of 0 weighs exp(0) = 1 "
            "before the largest is taken off: give it the score -inf.",
            "first-block-alone": "A program goes through all blocks of its sequence: yours is the answer of the first "
            "{size} tokens alone.",
            "heads-dealt-out": "The query heads of a group are neighbours: head {head} reads KV head {head} // {group} "
            "= {kv_head}, and the remainder is something else.",
            "one-kv-head-for-all": "A query head reads the KV head of its group: head {head} reads KV head {kv_head}, "
            "and yours read KV head 0.",
            "head-for-its-kv-head": "A group of {group} query heads shares one KV head: head {head} reads KV head "
            "{kv_head}, and yours took the number of the query head.",
            "number-not-multiplied": "A pointer counts elements: block number b begins b times the first stride behind "
            "the start, and yours added the number itself.",
            "slots-not-multiplied": "A pointer counts elements: slot number s begins s times the second stride behind "
            "its block's start, and yours added the number itself.",
            "wrong-stride": "Each index has the stride of its own axis, in the order block, slot, KV head, element: "
            "yours has a stride with another's index.",
            "strides-made-up": "The caches are laid out in another order than their shape says: take every step from "
            "`cache_strides`, and none from the sizes.",
        },
        world=_KernelWorld,
        examples=(
            _plain({**ONE_HEAD, "compiled": 1}, _programs(4, seed=9, kind="equal")),
            _telling(ALONE, _programs(4, 4, 4, seed=1)),
            _telling(ALONE, _programs(2, seed=7), _programs(5, seed=3)),
            _telling(TWO_GROUPS, _programs(4, 4, seed=21)),
            _telling(TWO_GROUPS, _programs(4, 4, seed=21, layout="heads first")),
            _telling(ALONE, _programs(4, 4, 4, seed=1, layout="interleaved")),
            _telling(ALONE, _programs(4, 4, 4, seed=1, layout="transposed")),
            _plain(ONE_GROUP, _programs(3, 4, seed=9)),
            _telling(ALONE, _programs(4, seed=7), _programs(4, seed=13, kind="high")),
            _telling(ALONE, _programs(4, seed=7), _programs(6, seed=15, kind="rising")),
            _telling(ALONE, _programs(4, seed=7), _programs(6, seed=15, kind="falling")),
            _telling(ALONE, _programs(4, seed=7), _programs(4, seed=17, kind="low")),
            _telling(ALONE, _programs(4, seed=19, scale=0.3)),
            _plain(ALONE, _programs(0, 2, seed=21)),
        ),
        setups=_kernel_sizes,
        cannot_run=_why_not,
        random_histories=24,
    ),
)
