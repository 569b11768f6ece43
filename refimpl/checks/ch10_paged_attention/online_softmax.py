"""10-online-softmax: one block at a time.

What is said here of blocks, the kernel's step says as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from refimpl.checks.attention_account import Paged, finite
from refimpl.checks.attention_layouts import LAYOUTS
from refimpl.checks.attention_thoughts import Thought, gives, gives_part, online_thoughts, state_thoughts
from refimpl.checks.attention_world import (
    BLOCKS,
    GROUPS,
    KEEPS,
    KINDS,
    LARGE,
    LSE,
    MANY_BLOCKS,
    NOTHING,
    ONE_GROUP,
    ONE_HEAD,
    PAIR,
    PART_FULL,
    SCALE,
    SCALES,
    SEEDS,
    TWO_GROUPS,
    StateWorld,
    block_sizes,
    plain,
    said_scale,
    scale_given,
    telling,
    vanished,
)
from refimpl.checks.ch10_paged_attention.gqa import OF_SCORES
from refimpl.checks.step import LoadedLater, Operation, Step, counted

ONE_BLOCK = "no more than a block's scores at a time"
STATE = 2  # what else may stand in one tensor with a head's scores: its largest score, its sum


class _BlocksWorld(StateWorld):
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
        line = f"attend_in_blocks(query[0], key_cache, value_cache, block_tables[0], {context_len}{said_scale(scale)})"
        got, longest = self._call(line, paged, context_len, scale)
        many = context_len > size
        in_part = PART_FULL if context_len % size else MANY_BLOCKS if many else BLOCKS

        def thoughts(output: Any, lse: Any) -> Iterator[Thought]:
            broken = not (finite(output) and finite(lse))
            if self.answered:
                yield "no-tokens-forgotten", lambda: not context_len
                yield "no-maximum-taken", lambda: kind == "high" and broken
                yield "one-maximum-for-all-heads", lambda: kind == "apart" and vanished(output)
                yield "first-maximum-kept", lambda: kind == "rising" and broken
                yield "largest-of-the-block", lambda: kind == "falling" and broken
                yield "maximum-starts-at-zero", lambda: kind == "low" and vanished(output)
                yield "tail-read", lambda: kind == "usual" and bool(context_len % size) and broken
            if not context_len or broken or kind not in ("usual", "equal"):
                return
            in_order = paged.tokens(0, table=range(len(paged.keys)))
            yield "logical-for-physical", lambda: gives(output, in_order.states())
            yield from online_thoughts(tokens, size, output)
            yield "full-blocks-only", lambda: many and gives_part(tokens, context_len // size * size, output)
            yield from state_thoughts(tokens, kind, output, lse)

        self.compare(got, tokens, self.about(tokens, kind, in_part), thoughts)
        if context_len >= 12 * size:
            heads = len(tokens.query)
            self.log.hold(
                ONE_BLOCK,
                longest <= max(heads * (size + STATE), tokens.head_dim),
                f"exponentials should be taken of a block's {counted(size, 'score')} at a time",
                f"they were taken of {longest} at a time",
                "whole-row-kept",
                longest=longest,
                size=size,
            )
        if context_len:
            self.check_kept(paged.tensors, paged.before)

    def _call(self, line: str, paged: Paged, context_len: int, scale: float | None) -> Any:
        from refimpl.checks.attention_inputs import LongestRow

        query, key_cache, value_cache, tables, _ = paged.tensors
        with LongestRow() as row:
            got = self.log.call(
                line,
                lambda: self.subject(query[0], key_cache, value_cache, tables[0], context_len, **scale_given(scale)),
                raises=self.error_that_tells(paged),
            )
        return got, row.length


def _in_blocks(
    context_len: int, *, seed: int, kind: str = "usual", scale: float | None = None, layout: str = LAYOUTS[0]
) -> Operation:
    return "attend_in_blocks", context_len, kind, scale, seed, layout


OF_BLOCKS = {
    "logical-for-physical": "Block 0 of the sequence lies in block block_table[0] of the cache: yours took the index "
    "in the table for the number of the block, and read slots that hold nothing.",
    "full-blocks-only": "The last block counts as well when it is only partly filled: yours left out the tokens in it.",
    "padding-read": "Behind a sequence's last block its table may hold anything: yours looked one of those entries up, "
    "so count the blocks that the tokens need.",
    "maximum-starts-at-zero": "Before the first token the largest score is -inf: a maximum that starts at 0, or at "
    "another number, wins over scores below it, and their exponentials vanish.",
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


STEP = Step(
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
            name: OF_SCORES[name]
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
        **OF_BLOCKS,
        "tail-read": "Slots behind the last token hold anything, NaN here, and 0 times NaN is NaN: leave them out, "
        "of the keys and of the values.",
        "blocks-averaged": "A block counts as much as the exponentials of its scores add up to: yours is the plain "
        "average of the blocks' answers.",
        "whole-row-kept": "The point is to need no more than a block's scores at a time, {size} here: yours took "
        "the exponentials of {longest} at once.",
    },
    world=_BlocksWorld,
    examples=(
        telling(ONE_HEAD, _in_blocks(4, seed=9, kind="equal")),
        telling({**ONE_GROUP, "neighbours": 1}, _in_blocks(6, seed=1)),
        telling(TWO_GROUPS, _in_blocks(6, seed=3)),
        telling(ONE_GROUP, _in_blocks(2, seed=7), _in_blocks(5, seed=5)),
        telling(ONE_GROUP, _in_blocks(2, seed=7), _in_blocks(4, seed=2)),
        telling(ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(4, seed=11, kind="high")),
        telling(ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(6, seed=13, kind="rising")),
        telling(ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(6, seed=13, kind="falling")),
        telling(ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(4, seed=15, kind="low")),
        telling(
            ONE_GROUP, _in_blocks(4, seed=7), _in_blocks(4, seed=11, kind="high"), _in_blocks(4, seed=15, kind="apart")
        ),
        telling(ONE_GROUP, _in_blocks(4, seed=17, scale=0.3), _in_blocks(4, seed=17, scale=0.0)),
        telling(ONE_GROUP, _in_blocks(2, seed=7), _in_blocks(0, seed=19)),
        telling(ONE_GROUP, _in_blocks(24, seed=21)),
        telling({**ONE_HEAD, "block_size": 4}, _in_blocks(48, seed=21)),
        plain(ONE_GROUP, _in_blocks(5, seed=23, layout="heads first")),
        plain({**ONE_GROUP, "unused": 1}, _in_blocks(5, seed=5)),
    ),
    setups=block_sizes,
)
