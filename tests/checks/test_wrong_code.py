"""Wrong code that no misconception stands for is wrong all the same, and is shown a short history that is true.

Some of it is right for a while: it fails at the fifth call, at the ninth block, or when the pool is full again.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
from learners import allocate, allocator, free, share_block_table

from refimpl import Device, PhysicalTokenBlock
from refimpl.checks import CheckResult, steps
from refimpl.checks.engine import examine

Answer = Callable[..., Any]


def with_count(value: Any) -> Answer:
    """Allocates, and writes `value` where the owner count belongs."""

    def answer(self: Any, *_: Any) -> Any:
        block = allocate(self)
        block.ref_count = value
        return block

    return answer


def every(n: int, spoil: Callable[[Any, Any], Any]) -> Answer:
    """Allocates, and spoils each n-th block."""

    def answer(self: Any, *_: Any) -> Any:
        block = allocate(self)
        self.calls = getattr(self, "calls", 0) + 1
        return spoil(self, block) if self.calls % n == 0 else block

    return answer


def two_owners(self: Any, block: Any) -> Any:
    block.ref_count = 2
    return block


def always_the_first(self: Any, *_: Any) -> Any:
    allocate(self)
    self.first = getattr(self, "first", None) or PhysicalTokenBlock(self.device, 0, self.block_size)
    self.first.ref_count = 1
    return self.first


def other_device(self: Any, *_: Any) -> Any:
    block = allocate(self)
    block.device = Device.CPU
    return block


def other_size(self: Any, *_: Any) -> Any:
    block = allocate(self)
    block.block_size = 16
    return block


def takes_two(self: Any, *_: Any) -> Any:
    block = allocate(self)
    del self.free_blocks[-1:]
    return block


def eight_bits(self: Any, *_: Any) -> Any:
    block = allocate(self)
    block.block_number &= 7
    return block


def grows_when_empty(self: Any, *_: Any) -> Any:
    if not self.free_blocks:
        self.num_blocks += 1
    return allocate(self)


def spoils_another(self: Any, *_: Any) -> Any:
    block = allocate(self)
    self.out = [*getattr(self, "out", []), block]
    self.out[0].ref_count = len(self.out)
    return block


ALLOCATE: dict[str, Answer] = {
    "a constant": lambda self, *_: 7,
    "a pair": lambda self, *_: (allocate(self), 1),
    "a text": lambda self, *_: str(allocate(self)),
    "the class": lambda self, *_: allocate(self).__class__,
    "always the first block": always_the_first,
    "two owners": with_count(2),
    "no count": with_count(None),
    "a text for a count": with_count("1"),
    "half an owner too many": with_count(1.5),
    "fails at the fifth allocation": every(5, two_owners),
    "the fifth is nothing": every(5, lambda self, block: None),
    "always the CPU": other_device,
    "always 16 tokens": other_size,
    "takes two": takes_two,
    "numbers of three bits": eight_bits,
    "a refusal makes the pool grow": grows_when_empty,
    "counts on the first block": spoils_another,
}


def leaks_every_third(self: Any, block: Any) -> None:
    free(self, block)
    self.freed = getattr(self, "freed", 0) + 1
    if self.freed % 3 == 0:
        self.free_blocks.pop()


def loses_one_when_full(self: Any, block: Any) -> None:
    free(self, block)
    if self.num_blocks > 1 and len(self.free_blocks) == self.num_blocks:
        self.free_blocks.pop()


def puts_back_a_stranger(self: Any, block: Any) -> None:
    free(self, block)
    if block.ref_count == 0:
        self.free_blocks[-1] = PhysicalTokenBlock(self.device, (block.block_number + 1) % self.num_blocks, 16)


def remembers_the_last(self: Any, block: Any) -> None:
    if block.ref_count == 0 and block is getattr(self, "last", None):
        raise ValueError("double free")
    block.ref_count -= 1
    self.last = block
    if block.ref_count <= 0:
        block.ref_count = 0
        self.free_blocks.append(block)


def lowers_all(self: Any, block: Any) -> None:
    free(self, block)
    for other in self.free_blocks:
        other.ref_count = -1


def by_two(self: Any, block: Any) -> None:
    if block.ref_count == 0:
        raise ValueError("double free")
    block.ref_count -= min(2, block.ref_count)
    if block.ref_count == 0:
        self.free_blocks.append(block)


def unmakes(self: Any, block: Any) -> None:
    free(self, block)
    del block.ref_count


def empties_on_double_free(self: Any, block: Any) -> None:
    if block.ref_count == 0:
        self.free_blocks.clear()
    free(self, block)


FREE: dict[str, Answer] = {
    "nothing at all": lambda self, block: None,
    "leaks at every third free": leaks_every_third,
    "loses a block when the pool is full again": loses_one_when_full,
    "puts back another block": puts_back_a_stranger,
    "knows only the last double free": remembers_the_last,
    "lowers the count of all free blocks": lowers_all,
    "takes two owners away": by_two,
    "deletes the count": unmakes,
    "a count of None": lambda self, block: (free(self, block), setattr(block, "ref_count", None)),
    "a double free empties the pool": empties_on_double_free,
}


def memo() -> Answer:
    """Shares, and returns the same list when asked for the same table again."""
    seen: dict[int, Any] = {}

    def answer(table: list[Any]) -> Any:
        child = share_block_table(table)
        return seen.setdefault(id(table), child)

    return answer


def clears(table: list[Any]) -> Any:
    child = share_block_table(table)
    table.clear()
    return child


def counts_from_one(table: list[Any]) -> Any:
    for block in table[1:]:
        block.ref_count += 1
    return table.copy()


def first_four(table: list[Any]) -> Any:
    for block in table[:4]:
        block.ref_count += 1
    return table.copy()


SHARE: dict[str, Answer] = {
    "backwards": lambda table: share_block_table(table)[::-1],
    "a tuple": lambda table: tuple(share_block_table(table)),
    "a generator": lambda table: (block for block in share_block_table(table)),
    "empties the first table": clears,
    "skips the first block": counts_from_one,
    "counts four blocks": first_four,
    "drops the table of one block": lambda table: share_block_table(table) if len(table) > 1 else [],
    "the first block again": lambda table: share_block_table(table) + table[:1],
    "the same list for the same table": memo(),
}

CASES = [
    pytest.param(exercise_id, answer, id=f"{exercise_id}: {name}")
    for exercise_id, answers in (("03-allocate", ALLOCATE), ("03-free", FREE), ("03-share", SHARE))
    for name, answer in answers.items()
]


def checked(exercise_id: str, answer: Answer) -> CheckResult:
    step = steps()[exercise_id]
    return examine(step, allocator(**{step.writes[0]: answer}) if step.writes else answer)


@pytest.mark.parametrize(("exercise_id", "answer"), CASES)
def test_wrong_code_is_rejected_with_a_short_history(exercise_id: str, answer: Answer) -> None:
    result = checked(exercise_id, answer)
    assert result.outcome in ("wrong", "raised", "misconception"), str(result)
    assert result.points < result.max_points
    nine_blocks = answer is eight_bits  # nothing is wrong before the ninth block goes out
    assert len(result.trace) <= (10 if nine_blocks else 7), str(result)


LIES: list[tuple[str, Answer]] = [
    ("get_num_free_blocks", lambda self: self.num_blocks),
    ("get_num_free_blocks", lambda self: 0),
    ("get_num_free_blocks", lambda self: len(self.free_blocks) + 1),
    ("get_num_total_blocks", lambda self: len(self.free_blocks)),
    ("get_num_total_blocks", lambda self: 0),
    ("get_num_total_blocks", lambda self: self.num_blocks + 1),
]


@pytest.mark.parametrize("exercise_id", ["03-allocate", "03-free"])
@pytest.mark.parametrize(("name", "lie"), LIES)
def test_expected_values_do_not_come_from_the_code_under_test(exercise_id: str, name: str, lie: Answer) -> None:
    """D9: a given method that lies is caught, whichever step is checked."""
    step = dataclasses.replace(steps()[exercise_id], after=())
    assert examine(step, allocator(**{name: lie})).outcome in ("wrong", "misconception")


def test_code_that_fails_by_chance_does_not_pass_and_its_history_is_cut() -> None:
    rng = random.Random(0)
    result = checked("03-allocate", lambda self, *_: None if rng.random() < 0.01 else allocate(self))
    assert not result.passed
    assert len(result.trace) <= 12


def test_a_history_that_cannot_be_short_is_cut() -> None:
    result = checked("03-allocate", every(15, two_owners))
    assert result.outcome == "wrong"
    assert len(result.trace) == 12
    assert result.trace[0].startswith("allocator = ")
    assert result.trace[1] == "…    # 5 more"
    assert result.trace[2:] == (*(f"{name} = allocator.allocate()" for name in "fghijklmn"), result.trace[-1])
    assert result.trace[-1].startswith("o = allocator.allocate()    # o.ref_count should be 1, but it is 2")


def test_state_shared_by_all_pools_does_not_pass() -> None:
    calls = []

    def answer(self: Any, *_: Any) -> Any:
        calls.append(self)
        return None if len(calls) == 40 else allocate(self)

    assert not checked("03-allocate", answer).passed
