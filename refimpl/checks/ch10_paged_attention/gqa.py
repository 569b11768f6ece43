"""10-gqa: one query, shared KV heads.

What is said here of a softmax and its scores, later steps say as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from refimpl.checks.attention_account import ROW_SIZES, Tokens, finite, said_kind, said_sizes
from refimpl.checks.attention_thoughts import Thought, state_thoughts
from refimpl.checks.attention_world import (
    AVERAGE,
    FOUR_HEADS,
    GROUPS,
    KEEPS,
    KINDS,
    LARGE,
    LSE,
    NOTHING,
    NOTHING_THERE,
    ONE_ELEMENT,
    PAIR,
    PLAIN,
    SCALE,
    SCALES,
    SEEDS,
    StateWorld,
    plain,
    row_sizes,
    said_scale,
    scale_given,
    telling,
    vanished,
)
from refimpl.checks.step import LoadedLater, Operation, Step


class _AttendWorld(StateWorld):
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
        line = f"attend(query, keys, values{said_scale(scale)})"
        told = self.telling and self.answered and not num_tokens
        raises = (NOTHING_THERE, "no-tokens-forgotten") if told else None
        got = self.log.call(line, lambda: self.subject(query, keys, values, **scale_given(scale)), raises=raises)

        def thoughts(output: Any, lse: Any) -> Iterator[Thought]:
            broken = not (finite(output) and finite(lse))
            if self.answered:
                yield "no-tokens-forgotten", lambda: not num_tokens
                yield "no-maximum-taken", lambda: kind in ("high", "low") and broken
                yield "one-maximum-for-all-heads", lambda: kind == "apart" and vanished(output)
            if num_tokens and kind in ("usual", "equal"):
                yield from state_thoughts(tokens, kind, output, lse)

        self.compare(got, tokens, self.about(tokens, kind, AVERAGE), thoughts)
        if num_tokens:
            self.check_kept(tensors, before)


OF_SCORES = {
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


STEP = Step(
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
    misconceptions=OF_SCORES,
    world=_AttendWorld,
    examples=(
        telling(ONE_ELEMENT, ("attend", 2, "equal", None, 0)),
        telling({**FOUR_HEADS, "num_groups": 1}, ("attend", 3, *PLAIN, 2)),
        telling(FOUR_HEADS, ("attend", 5, *PLAIN, 4)),
        telling(FOUR_HEADS, ("attend", 4, "usual", 0.3, 3), ("attend", 4, "usual", 0.0, 3)),
        plain({**FOUR_HEADS, "num_kv_heads": 1}, ("attend", 4, *PLAIN, 5)),
        plain(FOUR_HEADS, ("attend", 1, *PLAIN, 6)),
        telling(FOUR_HEADS, ("attend", 2, *PLAIN, 6), ("attend", 3, "high", None, 7)),
        telling(FOUR_HEADS, ("attend", 2, *PLAIN, 6), ("attend", 3, "low", None, 8)),
        telling(FOUR_HEADS, ("attend", 2, *PLAIN, 6), ("attend", 3, "high", None, 7), ("attend", 3, "apart", None, 8)),
        telling(FOUR_HEADS, ("attend", 2, *PLAIN, 6), ("attend", 0, *PLAIN, 9)),
    ),
    setups=row_sizes,
)
