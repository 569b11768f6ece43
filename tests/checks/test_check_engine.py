"""The engine behind every check: seven outcomes, a time limit, and no way for a learner's code to break out of it."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from learners import allocate, allocator, answered, chapter_of, free, share_block_table, subject

import refimpl
from refimpl import Device, PhysicalTokenBlock, UncachedBlockAllocator, proof
from refimpl.checks import CheckResult, add_to_class, check, steps
from refimpl.checks.engine import TIME_LIMIT, examine
from refimpl.checks.step import History, Log, Step, World, equal

SOON = 1.0  # seconds; the time limit for answers that never return, of which most is left to a loaded machine

STEPS = list(steps().values())
SMALL = [step for step in STEPS if step.exercise_id[:2] in ("00", "03")]  # for what is the engine's alone
CALLED = [step for step in STEPS if step.exercise_id != "10-kernel"]  # a kernel is rewritten from its source instead
by_step = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.exercise_id)


def stub(*args: Any) -> Any:
    raise NotImplementedError()


def allocate_check(answer: Callable[..., Any], time_limit: float = TIME_LIMIT, **methods: Any) -> CheckResult:
    return examine(steps()["03-allocate"], allocator(allocate=answer, **methods), time_limit)


def free_check(answer: Callable[..., Any], time_limit: float = TIME_LIMIT) -> CheckResult:
    return examine(steps()["03-free"], allocator(free=answer), time_limit)


@pytest.fixture(autouse=True)
def _the_reference_works_afterwards() -> Iterator[None]:
    """Whatever a check did, refimpl's own code runs again when it is over."""
    yield
    pool = UncachedBlockAllocator(Device.GPU, 16, 2)
    block = pool.allocate()
    assert refimpl.share_block_table([block])[0].ref_count == 2
    pool.free(block)
    pool.free(block)
    assert pool.get_num_free_blocks() == 2


# Passed, not attempted, and how points are given.


@by_step
def test_the_examples_alone_compare_every_property(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that slow code, which meets few random histories, is judged in full."""
    monkeypatch.setattr("refimpl.checks.engine.RANDOM_HISTORIES", 0)
    assert examine(step, subject(step)).passed


def test_a_step_says_how_many_histories_a_slow_machine_plays_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refimpl.checks.engine.ENOUGH", 0)
    step = steps()["03-free"]
    assert (
        "on 7 histories"
        in examine(dataclasses.replace(step, examples=step.examples[:3], random_histories=4), subject(step)).message
    )


@by_step
def test_random_histories_alone_compare_every_property(step: Step) -> None:
    """W3: a check does not live on fixed inputs."""
    assert examine(dataclasses.replace(step, examples=()), subject(step)).passed


@pytest.mark.parametrize("step", CALLED, ids=lambda step: step.exercise_id)
def test_an_untouched_stub_is_not_attempted(step: Step) -> None:
    """W9."""
    result = examine(step, answered(step, stub))
    assert (result.outcome, repr(result)) == ("not attempted", "0.0")
    assert f"`{step.asks_for[0]}` still ends in" in result.message


def test_a_stub_that_the_answer_calls_is_the_one_that_is_named() -> None:
    def locate(*args: Any) -> Any:
        raise NotImplementedError()

    def slots(table: Any, positions: Any, size: int) -> list[int]:
        return [block.block_number * size + offset for block, offset in (locate(table, p, size) for p in positions)]

    result = examine(steps()["02-slots"], slots)
    assert (result.outcome, repr(result)) == ("not attempted", "0.0")
    assert (
        result.message == "This step needs `locate`, which still ends in `raise NotImplementedError()`: "
        "write that one first."
    )


def test_an_error_of_the_course_s_own_is_no_stub() -> None:
    def slots(table: Any, positions: Any, size: int) -> Any:
        return UncachedBlockAllocator(Device.GPU, size, 2).contains_block(0)  # which it does not answer

    result = examine(steps()["02-slots"], slots)
    assert result.outcome == "raised"
    assert "at your line `return UncachedBlockAllocator(" in result.message


@by_step
def test_one_of_several_answers_is_not_enough(step: Step) -> None:
    """Each answer cell that is left as it was keeps the step from passing."""
    for cell in chapter_of(step).answers_of(step):
        unfinished = proof.subject(step, chapter_of(step).with_stubs([cell]))
        result = examine(step, unfinished)
        assert not result.passed, cell
        assert "NotImplementedError" in result.message, str(result)


@by_step
def test_an_empty_answer_earns_nothing(step: Step) -> None:
    result = examine(step, answered(step, lambda *args: None))
    assert (result.passed, repr(result)) == (False, "0.0")


@by_step
@pytest.mark.parametrize("body", [lambda *args: 0, lambda *args: []], ids=["0", "[]"])
def test_a_constant_earns_half_at_most(step: Step, body: Callable[..., Any]) -> None:
    """W3. Half: 0 slots are wasted now and then, and a table without blocks is shared as []."""
    result = examine(step, answered(step, body))
    assert not result.passed
    assert result.points <= step.points / 2


def test_points_are_the_share_of_the_properties_that_hold() -> None:
    """A01. Of 03-free's six one is broken, that double frees are refused; to run without an error earns nothing."""

    def accepts(self: Any, block: Any) -> None:
        if block.ref_count:
            free(self, block)

    result = free_check(accepts)
    assert result.misconception == "double-free-accepted"
    assert result.points == round(4 * 5 / 7, 2)


class Planted(Exception):
    """An error that no step expects."""


@pytest.mark.parametrize(
    ("step", "name"),
    [pytest.param(step, name, id=f"{step.exercise_id}/{name}") for step in CALLED for name in step.asks_for],
)
def test_a_raise_planted_in_a_good_answer_is_found(step: Step, name: str) -> None:
    """W1: what is checked is the learner's code."""
    solved = subject(step)
    answer = getattr(solved, name) if step.writes else solved

    def planted(*args: Any, **named: Any) -> Any:
        answer(*args, **named)
        raise Planted("here")

    result = examine(step, subject(step, **{name: planted}))
    assert result.outcome == "raised"
    assert 'Planted: here, at your line `raise Planted("here")`.' in result.message
    assert result.trace[-1].endswith("# raised Planted")
    assert result.points < step.points


def test_an_answer_that_is_left_half_done_was_attempted() -> None:
    def half(self: Any, *_: Any) -> Any:
        if not self.free_blocks:
            raise NotImplementedError
        return allocate(self)

    def first_only(self: Any, *_: Any) -> Any:
        if 0 < len(self.free_blocks) < self.num_blocks:
            raise NotImplementedError
        return allocate(self)

    assert allocate_check(half).misconception == "empty-pool-other-error"
    result = allocate_check(first_only)
    assert result.outcome == "raised"
    assert "ended in NotImplementedError, at your line `raise NotImplementedError`" in result.message


def test_a_method_that_is_not_there_yet_is_named() -> None:
    result = examine(steps()["03-free"], allocator(free=None))
    assert result.outcome == "not attempted"
    assert "has no method `free` yet" in result.message


def test_a_constructor_that_is_not_there_yet_is_named() -> None:
    """Every class has an `__init__`, so one whose cell was never run has to be told from an answer."""

    class Bare:
        def __repr__(self) -> str:
            return "a block"

    class MadeByNew:
        def __new__(cls, *_: Any) -> MadeByNew:
            return object.__new__(cls)

    result = examine(steps()["01-fields"], Bare)
    assert (result.outcome, repr(result)) == ("not attempted", "0.0")
    assert result.message == "`Bare` has no method `__init__` yet; run the cell that defines it."
    assert examine(steps()["01-fields"], MadeByNew).misconception == "field-left-out"


def test_a_given_method_that_is_missing_is_named() -> None:
    class Bare:
        def allocate(self) -> None: ...

    assert "`Bare` has no method `get_num_free_blocks` yet" in examine(steps()["03-allocate"], Bare).message


def test_a_step_says_which_earlier_step_it_stands_on() -> None:
    wrong = allocator(allocate=lambda self, *_: None)
    result = examine(steps()["03-free"], wrong)
    assert (result.outcome, result.points) == ("wrong", 0)
    assert result.message == "This step builds on 03-allocate, which does not pass yet; mend that one first."
    missing = allocator(allocate=stub)
    assert examine(steps()["03-free"], missing).outcome == "not attempted"


def test_checks_depend_on_no_order() -> None:
    """W10."""
    subjects = [(step, subject(step)) for step in SMALL]
    subjects += [(step, answered(step, answer)) for step in SMALL for answer in (stub, lambda *args: None)]
    there = [str(examine(*pair)) for pair in subjects]
    back = [str(examine(*pair)) for pair in reversed(subjects)]
    assert there == back[::-1]


# What a check is given.


@pytest.mark.parametrize(
    ("exercise_id", "given", "said"),
    [
        ("03-free", None, "`None`"),
        ("03-free", 3, "an object of type `int`"),
        ("03-free", allocator()(Device.GPU, 16, 2), "an object of type `UncachedBlockAllocator`"),
        ("03-free", free, "the function `free`"),
        ("03-share", allocator(), "the class `UncachedBlockAllocator`"),
        ("03-share", [], "an object of type `list`"),
        ("03-share", None, "`None`"),
    ],
)
def test_the_wrong_kind_of_thing_gets_a_sentence(exercise_id: str, given: Any, said: str) -> None:
    result = examine(steps()[exercise_id], given)
    assert (result.outcome, repr(result)) == ("wrong", "0.0")
    assert result.message.endswith(f"and was given {said}.")
    assert f'`check("{exercise_id}", ' in result.message


@pytest.mark.parametrize(("wrong", "near"), [("03-fre", "03-free"), ("3-allocate", "03-allocate"), ("", "")])
def test_an_unknown_id_suggests_a_near_one(wrong: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"there is no exercise '{wrong}'; did you mean '{near}"):
        check(wrong, allocator())


def test_context_that_no_step_asks_for_is_refused() -> None:
    with pytest.raises(ValueError, match="03-free takes the UncachedBlockAllocator alone, not num_blocks"):
        check("03-free", allocator(), num_blocks=3)


def test_a_method_is_not_added_to_the_reference() -> None:
    before = UncachedBlockAllocator.free
    with pytest.raises(ValueError, match="refimpl's own class"):
        add_to_class(UncachedBlockAllocator)(free)
    assert UncachedBlockAllocator.free is before


# Raised.


def test_the_error_and_the_learners_own_line_are_told_without_a_traceback() -> None:
    def answer(self: Any, *_: Any) -> Any:
        return sorted([3, "a"])  # type: ignore[type-var]

    result = allocate_check(answer)
    assert result.outcome == "raised"
    assert result.message.startswith("`a = allocator.allocate()` ended in TypeError: ")
    assert 'at your line `return sorted([3, "a"])' in result.message
    assert "Traceback" not in str(result) + result._repr_html_()
    assert __file__ not in str(result) + result._repr_html_()


class LoudRefusal(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError(), "KeyError"),
        (RuntimeError("first\nsecond\x1b[31m"), "RuntimeError: first"),
        (RuntimeError("  \n"), "RuntimeError"),
        (RuntimeError("Größe 😀 \ud800 \x07"), "RuntimeError: Größe 😀"),
        (RuntimeError("<script>alert(1)</script> `x"), "RuntimeError: <script>"),
        (RuntimeError("y" * 10**6), "RuntimeError: yyy"),
        (RuntimeError("<Pool object at 0x7f3a2b1c4d50>"), "RuntimeError: <Pool object>"),
        (LoudRefusal(), "LoudRefusal"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt("mine"), "KeyboardInterrupt: mine"),
        (GeneratorExit(), "GeneratorExit"),
        (ExceptionGroup("two", [ValueError("a"), KeyError("b")]), "ExceptionGroup: two (2 sub-exceptions)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_any_error_becomes_one_printable_line(
    error: BaseException, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def answer(self: Any, *_: Any) -> Any:
        raise error

    result = check("03-allocate", allocator(allocate=answer))
    out, err = capfd.readouterr()
    assert result.outcome == "raised"
    assert f"ended in {said}" in out
    assert (out.count("\n"), err) == (1, "")
    assert len(out) < 600
    result._repr_html_().encode()


def test_deep_recursion_is_an_error_like_any_other() -> None:
    def answer(self: Any, *_: Any) -> Any:
        return answer(self)

    result = allocate_check(answer)
    assert result.outcome == "raised"
    assert "RecursionError" in result.message


def test_a_wrong_signature_is_told() -> None:
    result = allocate_check(lambda self, size: allocate(self))
    assert result.outcome == "raised"
    assert "missing 1 required positional argument: 'size'" in result.message


@pytest.mark.parametrize("name", ["get_num_free_blocks", "get_num_total_blocks", "__init__"])
def test_an_error_outside_the_method_asked_for_is_no_traceback_either(name: str) -> None:
    def broken(self: Any, *args: Any) -> Any:
        raise OSError("broken")

    result = allocate_check(allocate, **{name: broken})
    assert result.outcome == "raised"
    assert "OSError: broken" in result.message


class Hostile:
    """A value that defends itself."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    def __hash__(self) -> int:
        raise RuntimeError("not to be hashed")

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")


STRANGE = [Hostile(), float("nan"), float("inf"), "1", b"1", [1], None, 10**5000, object()]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
def test_a_strange_owner_count_is_wrong_and_breaks_nothing(value: Any) -> None:
    def strange_allocate(self: Any, *_: Any) -> Any:
        block = allocate(self)
        block.ref_count = value
        return block

    def strange_free(self: Any, block: Any) -> None:
        free(self, block)
        block.ref_count = value

    for result in (allocate_check(strange_allocate), free_check(strange_free)):
        assert result.outcome == "wrong", str(result)
        assert len(str(result)) < 900
        assert " at 0x" not in str(result)


@by_step
def test_a_strange_answer_is_wrong_and_breaks_nothing(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refimpl.checks.engine.RANDOM_HISTORIES", 5)
    for value in (*STRANGE, [[1] * 1000] * 1000, "x" * 10**6, type):
        result = examine(step, answered(step, lambda *args, value=value: value))
        assert result.outcome in ("wrong", "raised", "misconception"), (type(value), str(result))
        assert result.points < result.max_points
        assert len(str(result)) < 900, type(value)


# Timed out.


def spin(*args: Any) -> Any:
    while True:
        pass


def spin_and_catch(*args: Any) -> Any:
    while True:
        try:  # noqa: SIM105
            [].pop()
        except:  # noqa: E722, S110
            pass


@pytest.mark.alone
def test_an_endless_loop_is_stopped_after_ten_seconds_and_named(capfd: pytest.CaptureFixture[str]) -> None:
    start = time.monotonic()
    result = check("03-free", allocator(free=spin))
    assert 10 <= time.monotonic() - start < 13
    assert (result.outcome, repr(result)) == ("timed out", "0.0")
    assert capfd.readouterr() == (result.sentence + "\n", "")
    assert result.message == (
        "`allocator.free(a)` had not returned when the check's 10 seconds were over; "
        "look for a loop whose condition never changes."
    )
    assert result.trace[-1] == "allocator.free(a)    # did not return"


@pytest.mark.parametrize("loop", [spin, spin_and_catch])
@pytest.mark.parametrize("method", ["allocate", "free", "__init__"])
def test_an_endless_loop_leaves_no_thread_behind(method: str, loop: Callable[..., Any]) -> None:
    before = threading.active_count()
    step = dataclasses.replace(steps()["03-free" if method == "free" else "03-allocate"], after=())
    result = examine(step, allocator(**{method: loop}), time_limit=SOON)
    assert result.outcome == "timed out"
    assert ("UncachedBlockAllocator(" if method == "__init__" else f"allocator.{method}(") in result.message
    assert "restart the kernel" not in result.message
    assert threading.active_count() == before


def test_code_that_cannot_be_stopped_is_left_and_said_to_run_on() -> None:
    awake = threading.Event()

    def sleeps(self: Any, block: Any) -> None:
        awake.wait(1000)

    def catches_while_it_sleeps(self: Any, block: Any) -> None:
        while not awake.is_set():
            try:  # noqa: SIM105
                time.sleep(0.001)
            except:  # noqa: E722, S110
                pass

    for answer in (sleeps, catches_while_it_sleeps):
        result = free_check(answer, SOON)
        assert result.outcome == "timed out"
        assert result.message.endswith("It could not be stopped and still runs: restart the kernel.")
    awake.set()


def test_a_loop_that_ends_only_for_some_pools_is_named_where_it_is_stuck() -> None:
    def answer(self: Any, *_: Any) -> Any:
        return spin() if len(self.free_blocks) == 1 else allocate(self)

    result = allocate_check(answer, SOON)
    assert result.outcome == "timed out"
    assert result.trace[-1] == "c = allocator.allocate()    # did not return"


def test_what_was_printed_before_the_end_is_kept() -> None:
    def answer(self: Any, *_: Any) -> Any:
        print("before the loop")
        spin()

    assert allocate_check(answer, SOON).printed == "before the loop\n"


# Not yours.


def wrapper(self: Any, block: Any) -> None:
    return UncachedBlockAllocator.free(self, block)


def catches_exceptions(self: Any, block: Any) -> None:
    try:
        UncachedBlockAllocator.free(self, block)
    except Exception:  # noqa: BLE001
        free(self, block)


def catches_everything(self: Any, block: Any) -> None:
    try:
        UncachedBlockAllocator.free(self, block)
    except BaseException:  # noqa: BLE001
        free(self, block)


class Inherits(UncachedBlockAllocator):
    pass


class CallsSuper(UncachedBlockAllocator):
    def free(self, block: PhysicalTokenBlock) -> None:
        super().free(block)


@pytest.mark.parametrize(
    "given",
    [
        UncachedBlockAllocator,
        Inherits,
        CallsSuper,
        allocator(free=UncachedBlockAllocator.free),
        allocator(free=wrapper),
        allocator(free=catches_exceptions),
        allocator(free=catches_everything),
        allocator(free=lambda self, block: [UncachedBlockAllocator.free(self, one) for one in (block,)]),
    ],
    ids=["itself", "inherits", "super", "alias", "wrapper", "except Exception", "except BaseException", "lambda"],
)
def test_the_reference_earns_no_points(given: type) -> None:
    result = examine(steps()["03-free"], given)
    assert (result.outcome, repr(result)) == ("not yours", "0.0")


def test_every_step_whose_answer_refimpl_has_refuses_it() -> None:
    has_answer = [step for step in STEPS if step.reference]
    assert len(has_answer) == len(STEPS) - 1  # 00-first-check is a toy
    assert {step.exercise_id: examine(step, own_answer(step)).outcome for step in has_answer} == {
        step.exercise_id: "not yours" for step in has_answer
    }


def own_answer(step: Step) -> object:
    """refimpl's own class or function: a public one, or the one that the step's reference is, or is a part of."""
    if step.subject in refimpl.__all__:
        return getattr(refimpl, step.subject)
    function = next(iter(step.reference))
    return getattr(sys.modules[function.__module__], function.__qualname__.partition(".")[0])


def test_the_reference_is_whole_after_a_check_that_ran_out_of_time() -> None:
    code = UncachedBlockAllocator.free.__code__
    assert free_check(spin, SOON).outcome == "timed out"
    assert UncachedBlockAllocator.free.__code__ is code


def test_two_checks_at_once_wait_for_each_other() -> None:
    results: list[CheckResult] = []
    threads = [
        threading.Thread(target=lambda step=step: results.append(examine(step, subject(step)))) for step in SMALL * 3
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.outcome for result in results] == ["passed"] * len(threads)
    assert sys.stdout.write is not None


def test_a_check_runs_inside_an_event_loop() -> None:
    """As in a notebook, where the kernel's loop runs while a cell does."""

    async def cell() -> CheckResult:
        return check("03-allocate", allocator())

    assert asyncio.run(cell()).passed


def test_an_interrupt_reaches_the_learner_and_leaves_nothing_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: threading.Thread, timeout: float | None = None) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    before = threading.active_count()
    code = UncachedBlockAllocator.allocate.__code__
    given = allocator(allocate=spin)
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        examine(steps()["03-allocate"], given)
    assert threading.active_count() == before
    assert UncachedBlockAllocator.allocate.__code__ is code


# A check must not be believed when it is at fault itself.


class Empty(World):
    def __init__(self, given: Any, setup: dict[str, int], log: Log) -> None:
        self.log = log

    def choices(self) -> list[Any]:
        return []

    def possible(self, operation: Any) -> bool:
        return True

    def perform(self, operation: Any) -> None:
        self.log.expect("a property that no step has", "it", 1, 2)


def test_a_check_that_compared_nothing_is_an_error() -> None:
    """W2."""
    empty = dataclasses.replace(steps()["03-share"], world=Empty, examples=())
    with pytest.raises(RuntimeError, match="03-share compared nothing for: every shared block has one owner more"):
        examine(empty, share_block_table)


def test_a_check_that_compares_what_it_does_not_say_is_an_error() -> None:
    unsaid = dataclasses.replace(
        steps()["03-share"], world=Empty, examples=(History({"num_blocks": 1}, (("share_block_table", "a"),)),)
    )
    with pytest.raises(RuntimeError, match="the check is at fault, not your code"):
        examine(unsaid, share_block_table)


class AgreesWithEverything(int):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def test_a_number_that_says_it_equals_everything_is_no_answer() -> None:
    assert not examine(steps()["00-first-check"], lambda reserved, used: AgreesWithEverything(7)).passed


@pytest.mark.parametrize("kind", [int, float, np.int64])
def test_a_right_number_is_right_in_any_type(kind: Any) -> None:
    assert examine(steps()["00-first-check"], lambda reserved, used: kind(reserved - used)).passed


def test_a_method_that_a_property_makes_is_a_method() -> None:
    made = property(lambda self: lambda block: free(self, block))
    assert examine(steps()["03-free"], allocator(free=made)).passed


@pytest.mark.parametrize("answer", [np.bool_(True), np.int64(1), True, 1])
def test_what_stands_for_true_is_true(answer: Any) -> None:
    assert equal(answer, True)
    assert not equal(answer, False)
    assert not equal(np.bool_(False), True)


def test_what_is_in_a_list_is_compared_as_strictly_as_by_itself() -> None:
    assert equal([(np.int64(3), 5)], [(3, 5)])
    for wrong in ([(AgreesWithEverything(7), 5)], [(3, 5), (4, 6)], ((3, 5),), [3, 5], None):
        assert not equal(wrong, [(3, 5)])
