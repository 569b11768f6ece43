"""Wrong answers of the first chapters that look like a misconception and are none: they are wrong, and no more is said.

Each once was told a thought that was not behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from learners import subject

from refimpl.checks import steps
from refimpl.checks.engine import examine

Answer = Callable[..., Any]


def never_less_than_one(reserved: int, used: int) -> int:
    return max(1, reserved - used)


def nothing_used_nothing_wasted(reserved: int, used: int) -> int:
    return reserved - used if used else 0


def refuses_a_number_twice() -> Answer:
    """The constructor of a class that knows which numbers there are."""
    made = set()

    def init(
        self: Any, device: Any, block_number: int, block_size: int, block_hash: Any = -1, num_hashed_tokens: int = 0
    ) -> None:
        if block_number < 0 or block_size < 1 or (device, block_number) in made:
            raise ValueError("no such block")
        made.add((device, block_number))
        self.device, self.block_number, self.block_size = device, block_number, block_size
        self.block_hash, self.num_hashed_tokens = block_hash, num_hashed_tokens
        self.ref_count, self.last_accessed, self.computed = 0, -1, False

    return init


def no_further_in_this_table(block_tables: Any) -> list[Any]:
    blocks: list[Any] = []
    for block_table in block_tables:
        for block in block_table:
            if block in blocks:
                break
            blocks.append(block)
    return blocks


def only_onwards(block_table: Any, positions: Any, block_size: int) -> list[int]:
    """Right as long as the positions ascend."""
    found, index = [], 0
    for position in positions:
        if not 0 <= position < len(block_table) * block_size:
            raise ValueError("no block for this position")
        while position >= (index + 1) * block_size:
            index += 1
        found.append((block_table[index].block_number - index) * block_size + position)
    return found


def a_block_until_the_next(block_table: Any, positions: Any, block_size: int) -> list[int]:
    """Right as long as the positions ascend."""
    found, index = [], -1
    for position in positions:
        if not 0 <= position < len(block_table) * block_size:
            raise ValueError("no block for this position")
        index = max(index, position // block_size)
        found.append(block_table[index].block_number * block_size + position % block_size)
    return found


def on_average(seq_lens: Any, block_size: int) -> int:
    lengths = list(seq_lens)
    if block_size < 1 or min(lengths, default=0) < 0:
        raise ValueError("no such length or block size")
    return sum(-length % block_size for length in lengths) // max(1, len(lengths))


def until_one_is_empty(seq_lens: Any, block_size: int) -> int:
    wasted = 0
    for seq_len in seq_lens:
        if seq_len < 0 or block_size < 1:
            raise ValueError("no such length or block size")
        if seq_len == 0:
            break
        wasted += -seq_len % block_size
    return wasted


def loses_all_others(self: Any, block: Any) -> None:
    if block.ref_count == 0:
        raise ValueError("nobody holds it")
    block.ref_count -= 1
    if block.ref_count == 0:
        self.free_blocks = [block]


def lists_the_extra_keys(self: Any, token_ids: Any, block_size: int, extra_keys: Any = ()) -> list[int]:
    keys = [self.key(0, (extra_keys,))] if extra_keys else []
    for start in range(0, len(token_ids), block_size):
        keys.append(self.key(keys[-1] if keys else 0, tuple(token_ids[start : start + block_size])))
    return keys


def always_four(self: Any, token_ids: Any, block_size: int, extra_keys: Any = ()) -> list[int]:
    prefix = self.key(0, (extra_keys,)) if extra_keys else 0
    keys = []
    for start in range(0, len(token_ids), 4):
        prefix = self.key(prefix, tuple(token_ids[start : start + 4]))
        keys.append(prefix)
    return keys


def in_whole_seconds(self: Any) -> Any:
    if not self.free_blocks:
        raise ValueError("no free block is addressable")
    blocks = self.free_blocks.values()
    victim = min(blocks, key=lambda block: (int(block.last_accessed), -block.num_hashed_tokens))
    del self.free_blocks[victim.block_hash]
    victim.computed = False
    return victim


def the_first_never_counts(self: Any, seqs: Any) -> list[int]:
    tables = [self.block_tables.get(seq.seq_id, [])[1:] for seq in seqs if self.enable_caching]
    found = []
    for blocks in zip(*tables, strict=False):
        if len(set(blocks)) > 1 or not blocks[0].computed:
            break
        found.append(blocks[0].block_number)
    return found


OTHERS: tuple[tuple[str, str, Answer], ...] = (
    ("00-first-check", "wasted_slots", never_less_than_one),
    ("00-first-check", "wasted_slots", nothing_used_nothing_wasted),
    ("01-fields", "__init__", refuses_a_number_twice()),
    ("01-identity", "distinct_blocks", no_further_in_this_table),
    ("02-slots", "slots", only_onwards),
    ("02-slots", "slots", a_block_until_the_next),
    ("02-waste", "internal_fragmentation", until_one_is_empty),
    ("02-waste", "internal_fragmentation", on_average),
    ("03-free", "free", loses_all_others),
    ("04-content-key", "of_tokens", lists_the_extra_keys),
    ("04-content-key", "of_tokens", always_four),
    ("04-evictor", "evict", in_whole_seconds),
    ("04-computed", "get_common_computed_block_ids", the_first_never_counts),
)


@pytest.mark.parametrize(("exercise_id", "name", "answer"), OTHERS, ids=lambda value: getattr(value, "__name__", value))
def test_what_only_looks_like_a_misconception_is_wrong_and_not_named(
    exercise_id: str, name: str, answer: Answer
) -> None:
    step = steps()[exercise_id]
    result = examine(step, subject(step, **{name: answer}))
    assert (result.outcome, result.misconception) == ("wrong", None), result.sentence
