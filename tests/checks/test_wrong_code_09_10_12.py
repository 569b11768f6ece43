"""Wrong answers that passed once, and that no misconception stands for: slips of the hand, or state kept too long."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
import torch
from learners import chapter, subject
from mutate_answers import functions, with_change

from refimpl.checks import steps
from refimpl.checks.engine import examine

Answer = Callable[..., Any]

num_gpu_blocks, slot_mapping = (chapter("09").solution()[name] for name in ("num_gpu_blocks", "slot_mapping"))
CHAPTER_10 = chapter("10").solution()
DecisionLog = chapter("12").solution()["DecisionLog"]


def spoils_the_table(cache: Any, block_table: Any, num_tokens: int) -> Any:
    block_table[-(-num_tokens // cache.shape[1]) :] = 0
    return CHAPTER_10["gather"](cache, block_table, num_tokens)


def gathers_into_one_buffer() -> Answer:
    buffer = torch.empty(1000)

    def answer(cache: Any, block_table: Any, num_tokens: int) -> Any:
        got = CHAPTER_10["gather"](cache, block_table, num_tokens)
        return buffer[: got.numel()].view(got.shape).copy_(got)

    return answer


def root_of_the_heads(query: Any, keys: Any, values: Any, scale: Any = None) -> Any:
    return CHAPTER_10["attend"](query, keys, values, query.shape[0] ** -0.5 if scale is None else scale)


def root_of_the_kv_heads(query: Any, keys: Any, values: Any, scale: Any = None) -> Any:
    return CHAPTER_10["attend"](query, keys, values, keys.shape[1] ** -0.5 if scale is None else scale)


def believes_in_nan(query: Any, keys: Any, values: Any, table: Any, context_len: int, scale: Any = None) -> Any:
    """What is no number is no token."""
    size, attend = keys.shape[1], CHAPTER_10["attend"]
    state = attend(query, keys[:0, 0], values[:0, 0], scale)
    for block in table[: -(-context_len // size)].tolist():
        is_token = ~keys[block, :, 0, 0].isnan()
        of_block = attend(query, keys[block, is_token], values[block, is_token], scale)
        state = CHAPTER_10["merge_attention_states"](*map(torch.stack, zip(state, of_block, strict=True)))
    return state


def for_every_limit(self: Any, within: int) -> Any:
    if not hasattr(self, "stays"):
        self.stays = DecisionLog(self.steps).short_stays(within)
    return self.stays


def without_quiet_steps_at_the_end(self: Any, within: int) -> Any:
    while self.steps and not self.steps[-1]:
        self.steps.pop()
    return DecisionLog(self.steps).short_stays(within)


def without_swaps(self: Any) -> Any:
    self.steps = [[d for d in decisions if d.action in ("recompute", "prefill")] for decisions in self.steps]
    return DecisionLog(self.steps).recomputed_tokens()


def first_that_is_slower(self: Any, queue: Any, now: float) -> Any:
    longest = max(queue, key=self.total_len)
    for group in queue:
        if self.total_len(group) == self.total_len(longest) and self.speed(group, now) < self.speed(longest, now):
            return group
    return longest


def two_longest(self: Any, group: Any) -> Any:
    return sum(sorted(seq.get_len() for seq in group.get_unfinished_seqs())[-2:])


def until_it_costs_more(self: Any, candidates: Any) -> Any:
    best, *others = sorted(candidates) or [min(candidates)]
    for size in others:
        if self.cost(size) > self.cost(best):
            break
        best = size
    return best


def once_picked(self: Any, candidates: Any) -> Any:
    if not hasattr(self, "picked"):
        self.picked = min(candidates, key=lambda size: (self.cost(size), -size))
    return self.picked


def in_percent(total: int, utilization: float, model: int, step: int, block_bytes: int) -> int:
    return num_gpu_blocks(total, int(100 * utilization) / 100, model, step, block_bytes)


def slots_in_one_buffer() -> Answer:
    buffer = torch.empty(1000, dtype=torch.int64)

    def answer(block_table: Any, positions: Any, block_size: int) -> Any:
        return buffer[: len(positions)].copy_(slot_mapping(block_table, positions, block_size))

    return answer


CASES: list[tuple[str, str, Answer]] = [
    ("09-num-blocks", "num_gpu_blocks", in_percent),
    ("09-slot-mapping", "slot_mapping", slots_in_one_buffer()),
    ("10-gather", "gather", spoils_the_table),
    ("10-gather", "gather", gathers_into_one_buffer()),
    ("10-gqa", "attend", root_of_the_heads),
    ("10-gqa", "attend", root_of_the_kv_heads),
    ("10-online-softmax", "attend_in_blocks", believes_in_nan),
    ("12-read-the-log", "short_stays", for_every_limit),
    ("12-read-the-log", "short_stays", without_quiet_steps_at_the_end),
    ("12-read-the-log", "recomputed_tokens", without_swaps),
    ("12-choose-victim", "choose", first_that_is_slower),
    ("12-choose-victim", "total_len", two_longest),
    ("12-pick-block-size", "pick", until_it_costs_more),
    ("12-pick-block-size", "pick", once_picked),
]


@pytest.mark.parametrize(
    ("exercise_id", "name", "answer"),
    CASES,
    ids=[f"{step}: {answer.__qualname__.partition('.')[0]}" for step, _, answer in CASES],
)
def test_a_wrong_answer_without_a_name_is_rejected(exercise_id: str, name: str, answer: Answer) -> None:
    step = steps()[exercise_id]
    result = examine(step, subject(step, **{name: answer}))
    assert (result.outcome, result.misconception) == ("wrong", None), str(result)
    assert result.points < result.max_points


NAN_IS_NO_TOKEN = {
    "first + offsets < context_len": "first + offsets < context_len + BLOCK_SIZE",
    "tl.where(is_token, scores, float('-inf'))": "tl.where(scores == scores, scores, float('-inf'))",
    "weights[:, None] * values": "weights[:, None] * tl.where(values == values, values, 0.0)",
}
THREE_BLOCKS = {"range(0, context_len, ": "range(0, tl.minimum(context_len, 3 * BLOCK_SIZE), "}


@pytest.mark.parametrize("changes", [NAN_IS_NO_TOKEN, THREE_BLOCKS], ids=["believes in NaN", "three blocks"])
def test_a_wrong_kernel_without_a_name_is_rejected(changes: dict[str, str]) -> None:
    pytest.importorskip("triton")
    step = steps()["10-kernel"]
    (function,) = functions(chapter("10"), step)
    source = ast.unparse(function)
    for before, after in changes.items():
        assert before in source
        source = source.replace(before, after)
    (changed,) = ast.parse(source).body
    assert isinstance(changed, ast.FunctionDef)
    result = examine(step, with_change(step, chapter("10").solution(), changed))
    assert (result.outcome, result.misconception) == ("wrong", None), str(result)


def test_state_that_no_log_shares_tells_no_thought() -> None:
    left: dict[str, int] = {}

    def longest_absences(self: Any) -> Any:
        left.update({d.request_id: 0 for decisions in self.steps for d in decisions if d.action == "swap out"})
        return {**DecisionLog(self.steps).longest_absences(), **dict.fromkeys(left, 1)}

    step = steps()["12-read-the-log"]
    result = examine(step, subject(step, longest_absences=longest_absences))
    assert (result.outcome, result.misconception) == ("wrong", None), str(result)


def test_a_key_that_one_forgot_to_make_is_no_log_that_begins_late() -> None:
    def short_stays(self: Any, within: int) -> Any:
        found: dict[str, int] = {}
        for name in DecisionLog(self.steps).short_stays(within):
            found[name] += 1
        return found

    def longest_absences(self: Any) -> Any:
        found: dict[str, int] = {}
        for name, steps_away in DecisionLog(self.steps).longest_absences().items():
            found[name] = max(found[name], steps_away)
        return found

    step = steps()["12-read-the-log"]
    for answer in (short_stays, longest_absences):
        result = examine(step, subject(step, **{answer.__name__: answer}))
        assert (result.outcome, result.misconception) == ("raised", None), str(result)


def test_a_name_that_is_none_does_not_tell_that_no_tokens_were_forgotten() -> None:
    def attend(query: Any, keys: Any, values: Any, scale: Any = None) -> Any:
        if len(keys) == 0:
            return torch.zero(query)
        return CHAPTER_10["attend"](query, keys, values, scale)

    step = steps()["10-gqa"]
    result = examine(step, subject(step, attend=attend))
    assert (result.outcome, result.misconception) == ("raised", None), str(result)
