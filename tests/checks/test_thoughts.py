"""What worlds have in common: histories in words, theories that answers drop, replays, and what is taken back."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from refimpl.checks.step import RUNS, History, Log, Operation, World, is_count, is_whole, same_objects
from refimpl.checks.thoughts import Theories, asked, only_one, returns


class CountingWorld(World):
    """The learner's function is given numbers, and must give them back."""

    def choices(self) -> Iterable[Operation]:
        return [("say", 1)]

    def possible(self, operation: Operation) -> bool:
        return operation[1] != 0

    def _say(self, number: int) -> None:
        self.log.expect("gives it back", "the result", self.log.call("say", self.subject, number), number)


def test_an_operation_in_words_has_numbers_and_names() -> None:
    assert History.read({}, "fork a 0 12", "step").operations == (("fork", "a", 0, 12), ("step",))


def test_an_operation_calls_the_method_of_its_name() -> None:
    log = Log(reached=True)
    CountingWorld(lambda number: number, {}, log).perform(("say", 3))
    assert log.tally == {RUNS: 1, "gives it back": 1}


@pytest.mark.parametrize(
    ("words", "whole", "lines"), [(("say 1", "say 2"), True, 2), (("say 1", "say 9", "say 2"), False, 2)]
)
def test_a_replay_goes_on_to_the_first_difference(words: tuple[str, ...], whole: bool, lines: int) -> None:
    log = Log()
    world = CountingWorld(lambda number: min(number, 5), {"size": 1}, log)
    other, went_to_its_end = world.replayed(History.read({"size": 2}, *words))
    assert (went_to_its_end, len(other.log.lines), other.setup) == (whole, lines, {"size": 2})
    assert other.replaying
    assert not world.replaying
    assert log == Log()


def test_a_replay_leaves_out_what_is_not_possible() -> None:
    other, whole = CountingWorld(lambda number: number, {}, Log()).replayed(History.read({}, "say 0", "say 1"))
    assert whole
    assert len(other.log.lines) == 1


def test_what_is_taken_back_is_no_merit_but_that_it_ran() -> None:
    log = Log(reached=True, tally={"kept": 1})
    before = dict(log.tally)
    log.call("f()", int)
    log.expect("compared since", "it", 1, 1)
    log.take_back(before)
    assert log.tally == {"kept": 1, RUNS: 1}


def test_a_theory_drops_out_with_the_first_answer_that_it_does_not_give() -> None:
    suspects = Theories(
        [("adds", lambda a, b: a + b), ("adds", lambda a, b: b + a), ("multiplies", lambda a, b: a * b)]
    )
    suspects.ask(2, 2)
    suspects.hear(4)
    assert suspects.name is None
    suspects.ask(2, 3)
    suspects.hear(5)
    assert suspects.name == "adds"
    suspects.ask(1, 1)
    suspects.hear(7)
    assert suspects.name is None


def test_names_are_one_only_if_all_are_the_same() -> None:
    assert [only_one(names) for names in ([], ["a"], ["a", "a"], ["a", "b"])] == [None, "a", "a", None]


def test_what_is_asked_aside_may_raise() -> None:
    assert asked(divmod, 7, 2) == (3, 1)
    assert asked(divmod, 7, 0) is None
    assert returns(print)
    assert not returns(divmod, 7, 0)


def test_a_float_counts_nothing() -> None:
    assert is_count(3, 3)
    assert not is_count(3.0, 3)
    assert not is_count(4, 3)
    assert is_whole(3)
    assert not is_whole(3.0)
    assert not is_whole(None)


def test_equal_objects_are_not_the_same() -> None:
    one, twin = [1], [1]
    assert same_objects([one, twin], [one, twin])
    assert not same_objects([one], [twin])
    assert not same_objects([one], [one, twin])
