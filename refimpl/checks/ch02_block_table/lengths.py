"""02-num-required-blocks and 02-waste: how many blocks a length takes, and what the last one wastes.

The account does no division: the number of blocks is the number of tokens that open one.
"""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Number
from typing import Any

from refimpl.block import internal_fragmentation, num_required_blocks
from refimpl.checks.function_world import USUAL, FunctionWorld, calls, given_as, opened, random_sizes
from refimpl.checks.step import Operation, Step, counted, equal, is_count, show

ROUNDS_UP = "tokens that do not fill a block take one all the same"
NO_SPARE = "tokens that fill their blocks take no further one"
NO_TOKENS = "no tokens take no block"
NO_NEGATIVE = "a negative length is refused with ValueError"
NO_SIZE = "a block size below 1 is refused with ValueError"


class _RequiredWorld(FunctionWorld):
    """A function of two numbers; each operation is one call."""

    def choices(self) -> Iterable[Operation]:
        size = self.block_size
        yield from (("num_required_blocks", num_tokens, size) for num_tokens in range(3 * size + 2))
        yield from (("num_required_blocks", 70 * size + more, size) for more in (-1, 0, 1))
        yield from (("num_required_blocks", num_tokens, size) for num_tokens in (-1, -size, -2 * size - 1))
        yield from (("num_required_blocks", 35, bad) for bad in (0, -1, -size))

    def _num_required_blocks(self, num_tokens: int, size: int) -> None:
        line = f"num_required_blocks({num_tokens}, {size})"
        if num_tokens < 0 or size < 1:
            name = NO_NEGATIVE if num_tokens < 0 else NO_SIZE
            accepted = "negative-length-accepted" if num_tokens < 0 else "block-size-accepted"
            self.refuse(name, line, num_tokens, size, returned=accepted, tokens=num_tokens, size=size)
            return
        got = self.log.call(line, self.subject, num_tokens, size)
        blocks = opened(num_tokens, size)
        full = num_tokens == blocks * size
        in_part = NO_SPARE if full else ROUNDS_UP
        few = int(got) if isinstance(got, Integral) else 0
        self.log.hold(
            in_part if num_tokens else NO_TOKENS,
            is_count(got, blocks),
            f"the result should be {blocks}",
            f"it is {show(got)}",
            _required_fault(got, num_tokens, size, blocks) if self.telling else None,
            tokens=counted(num_tokens, "token"),
            size=size,
            blocks=counted(blocks, "block"),
            got=show(got),
            yours=counted(few, "block"),
            room=counted(few * size, "token"),
            left=num_tokens - few * size,
        )
        self.answered |= blocks > 0


def _required_fault(got: Any, num_tokens: int, size: int, blocks: int) -> str | None:
    """The misconception behind a wrong number of blocks."""
    if size < USUAL:
        return "always-16" if equal(got, opened(num_tokens, USUAL)) else None
    if not isinstance(got, Integral):
        return "nothing-returned" if got is None else "not-a-whole-number" if isinstance(got, Number) else None
    full = num_tokens == blocks * size
    if got == blocks - 1 > 0 and not full:
        return "rounded-down"
    if got == blocks + 1 and full:
        return "one-more-when-full" if num_tokens else "empty-sequence-has-a-block"
    if got == blocks + 1:
        return "a-spare-block"
    return "slots-instead-of-blocks" if blocks > 1 and got == blocks * size else None


EMPTY_END = "the empty end of the last block is wasted"
FULL_END = "a sequence that fills its blocks wastes nothing"
NOTHING_HELD = "what holds no block wastes nothing"
SUMMED = "sequences waste one by one, and their waste adds up"
READ_ONCE = "what can be read only once is read only once"
NO_SUCH_LENGTH = "a length or block size that cannot be is refused with ValueError"


class _WasteWorld(FunctionWorld):
    """Lists of lengths; each operation is one call."""

    def choices(self) -> Iterable[Operation]:
        size = self.block_size
        lengths = sorted({0, 1, size - 1, size, size + 1, 2 * size, 2 * size + 1, 3 * size - 1, 35})
        lists = [(), *((length,) for length in lengths)]
        lists += [(first, second) for first in lengths for second in lengths]
        lists += [tuple(lengths), (*lengths[::-1], *lengths[::2])]
        yield from (
            ("internal_fragmentation", how, some, size)
            for some in lists
            for how in ("list", "iter")
            if some or how == "list"
        )
        for bad in (-1, -size - 1):
            yield from (("internal_fragmentation", "list", some, size) for some in ((bad,), (35, bad), (bad, size)))
        yield from (("internal_fragmentation", "list", (35,), bad) for bad in (0, -size))

    def _internal_fragmentation(self, how: str, lengths: tuple[int, ...], size: int) -> None:
        given, shown = given_as(how, lengths)
        line = f"internal_fragmentation({shown}, {size})"
        bad = min(lengths, default=0)
        if bad < 0 or size < 1:
            accepted = "negative-length-accepted" if bad < 0 else "block-size-accepted"
            self.refuse(NO_SUCH_LENGTH, line, given, size, returned=accepted, tokens=bad, size=size)
            return
        got = self.log.call(line, self.subject, given, size)
        in_use = [opened(length, size) * size for length in lengths]
        wasted = [room - length for room, length in zip(in_use, lengths, strict=True)]
        last = lengths[-1] if lengths else 0
        self.log.hold(
            _waste_property(how, lengths, wasted),
            is_count(got, sum(wasted)),
            f"the result should be {sum(wasted)}",
            f"it is {show(got)}",
            self._fault(got, how, lengths, wasted, size) if lengths and self.telling else None,
            tokens=counted(last, "token"),
            blocks=counted(opened(last, size), "block"),
            room=in_use[-1] if in_use else 0,
            wasted=sum(wasted),
            each=show(wasted),
            size=size,
            got=show(got),
        )
        self.answered |= wasted != [0] * len(wasted)

    def _fault(self, got: Any, how: str, lengths: tuple[int, ...], wasted: list[int], size: int) -> str | None:
        """The misconception behind a wrong answer; some thoughts are told by what was right before."""
        tokens = sum(lengths)
        together = opened(tokens, size) * size - tokens
        if got is None:
            return "nothing-returned"
        if equal(got, sum(wasted)):
            return "not-a-whole-number"
        if size < USUAL:
            return (
                "always-16" if equal(got, sum(opened(length, USUAL) * USUAL - length for length in lengths)) else None
            )
        if self.answered and how == "iter" and any(equal(got, value) for value in (sum(wasted) + tokens, -tokens, 0)):
            return "read-twice"
        if self.answered and len(lengths) > 1 and equal(got, together):
            return "one-table-for-all"
        if self.answered and len(lengths) > 1 and wasted[1] and equal(got, wasted[0]):
            return "first-sequence-only"
        return _waste_fault(got, lengths, size, wasted)


def _waste_property(how: str, lengths: tuple[int, ...], wasted: list[int]) -> str:
    """What a call with these lengths tells."""
    if how == "iter":
        return READ_ONCE
    if len(lengths) > 1:
        return SUMMED
    if not any(lengths):
        return NOTHING_HELD
    return EMPTY_END if any(wasted) else FULL_END


def _waste_fault(got: Any, lengths: tuple[int, ...], size: int, wasted: list[int]) -> str | None:
    """The misconception behind a wrong number of wasted slots."""
    blocks = [opened(length, size) for length in lengths]
    held, right = sum(blocks) * size, sum(wasted)
    filled = (size - waste for number, waste in zip(blocks, wasted, strict=True) if number)
    thoughts: dict[str, tuple[Any, ...]] = {
        "counted-in-every-block": (sum(number * waste for number, waste in zip(blocks, wasted, strict=True)),),
        "empty-sequence-holds-a-block": (right + size * lengths.count(0),),
        "full-block-counted-as-empty": (sum(waste or size for waste in wasted),),
        "filled-slots-counted": (sum(filled), sum(length % size for length in lengths)),
        "held-instead-of-wasted": (held,),
        "blocks-instead-of-slots": (sum(map(bool, wasted)),),
        "one-number-for-each": (wasted, tuple(wasted)),
        "a-share": tuple(part * right / whole for whole in (held, sum(lengths)) if whole for part in (1, 100)),
    }
    return next((name for name, values in thoughts.items() if any(equal(got, value) for value in values)), None)


REQUIRED = Step(
    exercise_id="02-num-required-blocks",
    title="how many blocks a length takes",
    points=2,
    subject="num_required_blocks",
    reference=(num_required_blocks,),
    properties=(ROUNDS_UP, NO_SPARE, NO_TOKENS, NO_NEGATIVE, NO_SIZE),
    misconceptions={
        "nothing-returned": "The caller takes as many blocks as this says, so return the number: yours returned None.",
        "rounded-down": "Tokens that do not fill a block need one all the same, so round up: {yours} of {size} "
        "would have room for {room}, and of {tokens} {left} would be left without a place.",
        "one-more-when-full": "The next block is taken when a token needs it, and not when the last one is full: "
        "{tokens} fill {blocks} of {size} exactly, and yours asks for {got}.",
        "a-spare-block": "No block is held in reserve, the next one is taken when a token needs it: there is "
        "room for {tokens} in {blocks} of {size}, and yours asks for {got}.",
        "empty-sequence-has-a-block": "A block is taken for a token, and where no token is no block is taken: "
        "0 tokens take 0 blocks, and yours asks for {got}.",
        "not-a-whole-number": "Blocks are handed out whole and counted with an int: {tokens} take {blocks}, and "
        "yours returned {got}.",
        "slots-instead-of-blocks": "The answer counts blocks and not the slots in them: {tokens} take {blocks} of "
        "{size}, and yours returned {got}.",
        "always-16": "The block size is the caller's to choose: {tokens} take {blocks} of {size}, and yours says "
        "{got}, as if blocks always held 16.",
        "negative-length-accepted": "Nothing has {tokens} tokens, so the caller has miscounted: raise ValueError, "
        "since an answer would hide the mistake.",
        "block-size-accepted": "A block has room for at least 1 token: with a block size of {size} there is no "
        "right answer, so raise ValueError.",
        "other-error": "The error for a length or a block size that cannot be is ValueError, raised on purpose, "
        "since that is what a caller waits for: yours ended in {error}.",
    },
    world=_RequiredWorld,
    examples=(
        calls(("num_required_blocks", 35, 16)),
        calls(("num_required_blocks", 32, 16)),
        calls(("num_required_blocks", 0, 16)),
        calls(*(("num_required_blocks", *pair) for pair in ((1, 16), (15, 16), (17, 16), (1025, 1024)))),
        calls(*(("num_required_blocks", num_tokens, 4) for num_tokens in (21, 0, 1, 3, 4, 5, 8))),
        calls(*(("num_required_blocks", num_tokens, 1) for num_tokens in (3, 1, 0))),
        calls(("num_required_blocks", 35, 16), ("num_required_blocks", -1, 16)),
        calls(("num_required_blocks", 35, 16), ("num_required_blocks", -16, 16)),
        calls(*(("num_required_blocks", *pair) for pair in ((35, 16), (35, 0), (0, 0)))),
        calls(("num_required_blocks", 35, 16), ("num_required_blocks", 35, -16)),
    ),
    setups=random_sizes,
)


WASTE = Step(
    exercise_id="02-waste",
    title="what the last blocks waste",
    points=2,
    subject="internal_fragmentation",
    reference=(internal_fragmentation,),
    properties=(EMPTY_END, FULL_END, NOTHING_HELD, SUMMED, READ_ONCE, NO_SUCH_LENGTH),
    misconceptions={
        "nothing-returned": "The caller needs the number of wasted slots: yours returned None.",
        "always-16": "The block size is the caller's to choose: in blocks of {size} the waste is {wasted}, and "
        "yours says {got}, as if blocks always held 16.",
        "counted-in-every-block": "Only the last block of a sequence can have an empty end, all before it are "
        "full: {tokens} in {blocks} of {size} waste {wasted} slots, and yours says {got}.",
        "full-block-counted-as-empty": "A last block that is full has no empty end: {tokens} fill {blocks} of "
        "{size}, which wastes nothing, and yours says {got}.",
        "empty-sequence-holds-a-block": "A sequence without tokens holds no block, and so wastes nothing: yours "
        "says {got}.",
        "filled-slots-counted": "The filled part of the last block is in use, and the rest of it is wasted: "
        "{tokens} in {blocks} of {size} waste {wasted} slots, and yours says {got}.",
        "held-instead-of-wasted": "A slot that holds a token is not wasted: of the {room} slots in {blocks} take "
        "away those of {tokens}, which leaves {wasted}, and yours says {got}.",
        "blocks-instead-of-slots": "Waste is counted in slots, since a block that is partly filled is only partly "
        "wasted: {tokens} in {blocks} of {size} waste {wasted} slots, and yours says {got}.",
        "one-number-for-each": "The answer is one number for all sequences, so add up what each of them wastes: "
        "yours returned {got}.",
        "one-table-for-all": "No two sequences share a last block here, so each rounds up for itself: they waste "
        "{each}, {wasted} slots in all, and yours, which adds up their tokens first, says {got}.",
        "first-sequence-only": "All sequences count: they waste {each}, {wasted} slots in all, and yours stopped "
        "after the first with {got}.",
        "not-a-whole-number": "Slots are counted, and counted with an int: {wasted} slots are wasted, and yours "
        "returned {got}.",
        "a-share": "Waste is counted in slots here and not as a share of them: {wasted} slots are wasted, and "
        "yours says {got}.",
        "read-twice": "Some iterables can be read only once: yours found nothing left the second time, so go "
        "through the lengths once, or make a list of them first.",
        "negative-length-accepted": "Nothing has {tokens} tokens, so the caller has miscounted: raise ValueError "
        "as `num_required_blocks` does, since an answer would hide the mistake.",
        "block-size-accepted": "A block has room for at least 1 token: with a block size of {size} there is no "
        "right answer, so raise ValueError as `num_required_blocks` does.",
        "other-error": "The error for a length or a block size that cannot be is ValueError, as "
        "`num_required_blocks` raises it: yours ended in {error}.",
    },
    world=_WasteWorld,
    examples=(
        calls(
            ("internal_fragmentation", "list", (35,), 16),
            ("internal_fragmentation", "list", (32,), 16),
            ("internal_fragmentation", "list", (0,), 16),
            ("internal_fragmentation", "list", (20, 32, 0, 35), 16),
        ),
        calls(("internal_fragmentation", "list", (1,), 16), ("internal_fragmentation", "list", (17,), 16)),
        calls(("internal_fragmentation", "list", (0,), 16)),
        calls(("internal_fragmentation", "list", (32,), 16)),
        calls(("internal_fragmentation", "list", (), 16)),
        calls(("internal_fragmentation", "list", (35,), 16), ("internal_fragmentation", "list", (35, 33, 30), 16)),
        calls(("internal_fragmentation", "list", (35,), 16), ("internal_fragmentation", "iter", (35, 33, 30), 16)),
        calls(("internal_fragmentation", "list", (7, 1, 4), 1)),
        calls(("internal_fragmentation", "list", (35,), 16), ("internal_fragmentation", "list", (-1,), 16)),
        calls(("internal_fragmentation", "list", (35,), 16), ("internal_fragmentation", "list", (35, -16), 16)),
        calls(*(("internal_fragmentation", "list", *pair) for pair in (((35,), 16), ((35,), 0), ((0,), 0)))),
    ),
    setups=random_sizes,
)
