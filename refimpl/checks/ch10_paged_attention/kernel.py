"""10-kernel: the loop of a Triton kernel.

Interpreted over float32 tensors that it cannot leave, and compiled once where there is CUDA.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from refimpl.checks.attention_account import Paged, finite
from refimpl.checks.attention_layouts import LAYOUTS
from refimpl.checks.attention_thoughts import Thought, kernel_thoughts
from refimpl.checks.attention_world import (
    ALONE,
    BLOCKS,
    KEEPS,
    KINDS,
    LARGE,
    LARGE_KINDS,
    MANY_BLOCKS,
    NO_CONTEXT,
    ONE_GROUP,
    ONE_HEAD,
    PART_FULL,
    SCALE,
    SCALES,
    SEEDS,
    TENSOR,
    TWO_GROUPS,
    BatchWorld,
    block_sizes,
    plain,
    said_scale,
    telling,
    vanished,
)
from refimpl.checks.ch10_paged_attention.gqa import OF_SCORES
from refimpl.checks.ch10_paged_attention.merge import OF_THE_BATCH
from refimpl.checks.ch10_paged_attention.online_softmax import OF_BLOCKS
from refimpl.checks.step import LoadedLater, Operation, Setup, Step

KV_HEAD = "each query head reads the KV head of its group"
ANY_STRIDES = "elements are found by the strides"


class _KernelWorld(BatchWorld):
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
        line = (
            f"run_kernel(decode_kernel, query, key_cache, value_cache, block_tables, context_lens{said_scale(scale)})"
        )
        got = self.log.call(
            line,
            lambda: run_kernel(self.subject, *paged.tensors, scale=scale),
            raises=(IndexError, "leaves-the-tensors") if self.telling else None,
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
                yield "maximum-starts-at-zero", lambda: kind == "low" and vanished(output)
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
    return {**block_sizes(rng), "num_kv_heads": kv_heads, "num_groups": groups}


def _programs(
    *lengths: int, seed: int, kind: str = "usual", scale: float | None = None, layout: str = LAYOUTS[0]
) -> Operation:
    return "decode_kernel", lengths, kind, scale, seed, layout


STEP = Step(
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
            name: OF_BLOCKS[name]
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
        "one-row-for-all": OF_THE_BATCH["one-row-for-all"],
        "no-maximum-taken": OF_SCORES["no-maximum-taken"],
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
        plain({**ONE_HEAD, "compiled": 1}, _programs(4, seed=9, kind="equal")),
        telling(ALONE, _programs(4, 4, 4, seed=23)),
        telling(ALONE, _programs(2, seed=7), _programs(5, seed=3)),
        telling(TWO_GROUPS, _programs(4, 4, seed=21)),
        telling(TWO_GROUPS, _programs(4, 4, seed=21, layout="heads first")),
        telling(ALONE, _programs(4, 4, 4, seed=23, layout="interleaved")),
        telling(ALONE, _programs(4, 4, 4, seed=23, layout="transposed")),
        plain(ONE_GROUP, _programs(3, 4, seed=9)),
        telling(ALONE, _programs(4, seed=7), _programs(4, seed=13, kind="high")),
        telling(ALONE, _programs(4, seed=7), _programs(6, seed=15, kind="rising")),
        telling(ALONE, _programs(4, seed=7), _programs(6, seed=15, kind="falling")),
        telling(ALONE, _programs(4, seed=7), _programs(4, seed=17, kind="low")),
        telling(ALONE, _programs(4, seed=19, scale=0.3)),
        plain(ALONE, _programs(0, 2, seed=21)),
        plain(ALONE, _programs(9, seed=5)),
        plain({**ALONE, "unused": 1}, _programs(5, seed=3)),
    ),
    setups=_kernel_sizes,
    cannot_run=_why_not,
    random_histories=24,
)
