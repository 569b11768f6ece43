"""10-merge: parts of a context, merged.

Also the merge by itself, where the learner's function calls one.
"""

from __future__ import annotations

import inspect
import random
import types
from collections.abc import Iterator
from typing import Any

from refimpl.checks.attention_account import INFINITY, Paged, State, finite, merged, rounded, same
from refimpl.checks.attention_layouts import LAYOUTS
from refimpl.checks.attention_thoughts import Thought, merge_thoughts
from refimpl.checks.attention_world import (
    KEEPS,
    KINDS,
    LARGE,
    LARGE_KINDS,
    NO_CONTEXT,
    ONE_GROUP,
    ONE_HEAD,
    SCALE,
    SCALES,
    SEEDS,
    TENSOR,
    TWO_GROUPS,
    BatchWorld,
    block_sizes,
    scale_given,
    telling,
    vanished,
)
from refimpl.checks.ch10_paged_attention.gqa import OF_SCORES
from refimpl.checks.ch10_paged_attention.online_softmax import OF_BLOCKS, STATE
from refimpl.checks.step import LoadedLater, Operation, Step, counted

ONE_PART = "sequences of one part are right"
MANY_PARTS = "parts are merged rightly"
EACH_ITS_OWN = "each sequence has its own length and its own row of the table"
SPLIT = "no softmax goes over more than a part"


class _MergeWorld(BatchWorld):
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
        self.insist_on_pair(MANY_PARTS, got, 1, 1, "lse-not-returned")
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
        from refimpl.checks.attention_inputs import LongestRow

        lengths, kind, scale, part, seed, layout = arguments
        paged = Paged(lengths, self.setup, kind, scale, seed, layout)
        self.log.note(paged.line)
        options = {**scale_given(scale), **({} if part is None else {"partition_size": part})}
        words = "".join(f", {name}={value}" for name, value in options.items())
        line = f"paged_attention(query, key_cache, value_cache, block_tables, context_lens{words})"
        with LongestRow() as row:
            got = self.log.call(
                line, lambda: self.subject(*paged.tensors, **options), raises=self.error_that_tells(paged)
            )
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
                yield "weights-overflow", lambda: kind in ("high", "low", "rising") and vanished(output)
                yield "one-maximum-for-all-heads", lambda: kind == "apart" and vanished(output)
                yield "one-length-for-all", lambda: kind == "usual" and lengths[seq] < max(lengths) and broken
            if lengths[seq] and kind in ("usual", "equal") and not broken:
                yield from merge_thoughts(paged, seq, output, size)

        parts = -(-max(lengths) // size) if size else 0
        self.compare(got, paged, property_of, thoughts, parts=counted(parts, "part"), part=size)
        if part is not None and len(lengths) == 1 and lengths[0] >= 24 and 2 < part <= lengths[0] // 6:
            self.log.hold(
                SPLIT,
                row.length <= max(len(paged.query[0]) * (max(part, parts) + STATE), paged.head_dim),
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


ONE_PAIR = {"num_kv_heads": 1, "num_groups": 2, "num_dims": 1, "block_size": 4}
TWO_PARTS = ((1.0, 0.0), (-INFINITY, 1.0), (100.0, 101.0), (-INFINITY, -INFINITY))  # their lses

OF_THE_BATCH = {
    "nothing-returned": "The caller needs the outputs of all sequences: yours returned None.",
    "one-row-for-all": "Each sequence has a block table of its own: sequence {seq} reads by row {seq}, and yours read "
    "by row 0.",
}


STEP = Step(
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
        **OF_THE_BATCH,
        "no-tokens-forgotten": "A sequence without tokens has no parts, or empty ones with lse -inf: its row is 0, "
        "so take care of -inf minus -inf, which is NaN, and of an empty list.",
        "padding-read": OF_BLOCKS["padding-read"],
        "lse-not-returned": OF_SCORES["lse-not-returned"],
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
        "weights-not-divided": "The parts' weights must add up to 1: divide each exp(lse) by the sum over the parts.",
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
        telling(ONE_PAIR, _batch(8, 1, seed=9, kind="equal", part=3)),
        telling(TWO_GROUPS, _batch(8, seed=1, part=3)),
        telling(TWO_GROUPS, _batch(5, seed=3)),
        telling(ONE_GROUP, _batch(2, seed=7), _batch(5, 3, seed=5, part=2)),
        telling(ONE_GROUP, _batch(2, seed=7), _batch(2, 6, seed=2, part=2)),
        telling(ONE_GROUP, _batch(4, seed=7, part=2), _batch(6, seed=7, kind="high", part=2)),
        telling(ONE_GROUP, _batch(4, seed=7, part=2), _batch(6, seed=9, kind="low", part=2)),
        telling(
            ONE_GROUP,
            _batch(4, seed=7, part=2),
            _batch(6, seed=7, kind="high", part=2),
            _batch(6, seed=15, kind="apart", part=2),
        ),
        telling(ONE_GROUP, _batch(6, seed=11, scale=0.3, part=4), _batch(6, seed=11, scale=0.0, part=4)),
        telling(ONE_GROUP, _batch(2, seed=7), _batch(4, 0, seed=13, part=2)),
        telling(ONE_GROUP, _batch(2, seed=7), _batch(0, seed=15)),
        telling(ONE_HEAD, _batch(24, seed=17, part=4, layout="heads first")),
        *(telling(ONE_HEAD, _batch(2, seed=7), _two_parts(*lses)) for lses in TWO_PARTS),
    ),
    setups=block_sizes,
)
