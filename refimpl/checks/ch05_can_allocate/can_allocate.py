"""05-can-allocate: now, later, or never.

Many a wrong inequality gives the right answer almost everywhere, and several the same wrong one; so a wrong answer is
named by asking the same class a short series of questions and seeing which wrong rule gives all its answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any

from refimpl.block_manager import AllocStatus, BlockSpaceManager
from refimpl.checks import admission_rules
from refimpl.checks.admission_world import (
    FINISHED_FIRST,
    LOOKED_AT,
    NOBODY,
    RECOMPUTED,
    REQUEST_KEEPS,
    RUNNING_FIRST,
    SWAPPED_OUT,
    WAITS,
    AdmissionWorld,
    alone,
)
from refimpl.checks.manager_comparison import Facts, StateOnly
from refimpl.checks.manager_world import CPU, DECISION, DECISION_KEEPS, GPU, REFUSAL_KEEPS, REFUSES, random_sizes, sizes
from refimpl.checks.step import History, Log, Operation, Setup, Step, show
from refimpl.checks.thoughts import asked, returns

GOES_ON = "allocate and free go on as before"


class _DecisionWorld(AdmissionWorld):
    """Questions, while blocks come and go. They are taken by refimpl's own `allocate`, which is not the question.

    `can_swap_in` is asked as well where `_alloc_status` is the learner's, since it goes by it.
    """

    verbs = ("can_allocate", "allocate", "free", "swap_out", "can_swap_in")

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        _with_an_allocate(self.manager)
        self.comparison = StateOnly(log, self.manager, self.account, self.fault)

    def possible(self, operation: Operation) -> bool:
        """As `AdmissionWorld`; a request is swapped out where there is room, since refusals are not asked about."""
        verb, key, *_ = operation
        if not super().possible(operation):
            return False
        if verb == "swap_out":
            seqs = self.groups[key].get_unfinished_seqs()
            fits = len(self.account.distinct([seq.seq_id for seq in seqs])) <= self.account.free(CPU)
            return fits and hasattr(self.manager, verb)
        if verb == "can_swap_in":
            part = getattr(self.subject, "_alloc_status", None)
            return part not in (None, BlockSpaceManager._alloc_status) and hasattr(self.manager, verb)
        return True

    def choices(self) -> Iterable[Operation]:
        yield from super().choices()
        for num_tokens in (1, self.block_size + 1, 2 * self.block_size + 1, self.account.free(GPU) * self.block_size):
            if num_tokens:
                yield from (("can_allocate", *rest) for rest in self.kinds(num_tokens))
        kept = self.account.watermark_blocks
        for required in (self.account.free(GPU) - kept, self.account.total[GPU] - kept):  # the edges of both answers
            for num_tokens in (required * self.block_size, required * self.block_size + 1):
                if num_tokens > 0:
                    yield "can_allocate", num_tokens, 1 + len(self.groups) % 2, 0

    def _can_allocate(self, num_tokens: int, num_seqs: int, text: int, kind: str = WAITS) -> None:
        group = self.request_of(len(self.groups) + 1, num_tokens, num_seqs, text, kind)
        line = f"manager.can_allocate({self.words(num_tokens, num_seqs, text, kind)})"
        facts = self.facts_of(group)
        if kind in (NOBODY, SWAPPED_OUT):
            self._refuse(line, self.manager.can_allocate, group, facts=facts)
        else:
            self._decide(line, group, self.account.answer(facts["required"]), **facts)
        has_none = not any(seq.seq_id in self.manager.block_tables for seq in group.get_seqs())
        should, but = "the request should have no block table after a question", "it has one"
        self.log.hold(DECISION_KEEPS, has_none, should, but, "question-takes-blocks")

    def _compare(self, facts: Facts, keeps: str = "") -> None:
        super()._compare(facts, keeps if self.operation[0] == "can_allocate" else GOES_ON)

    def refused(self, facts: Facts) -> tuple[str | None, str | None]:
        return "nobody-waiting-answered", "nobody-waiting-other-error" if self.answers_at_all else None

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        if self.operation[0] != "can_allocate" or self.account.answer(facts["required"]) is AllocStatus.OK:
            return None
        return (ValueError, "refused-not-answered") if self.answers_at_all else None

    @cached_property
    def answers_at_all(self) -> bool:
        """Whether the smallest of requests is answered: if not, no error of its own is about the others."""
        return returns(lambda: self.subject(2, 8, 1, 0.0, False).can_allocate(alone(0, range(1), 2)))

    def fault(self, symptom: str, facts: Facts) -> str | None:
        if self.operation[0] != "can_allocate":
            return None
        if symptom != "answer":
            return "question-takes-blocks"
        got = facts["got"]
        if not isinstance(got, AllocStatus):
            facts["got"] = show(got)
            return "answer-not-returned" if got is None else "not-an-answer"
        slips = admission_rules.slips().get(asked(self._series))
        if slips is None:
            return None
        about_never = AllocStatus.NEVER in (got, self.account.answer(facts["required"]))
        named = [name for name in (slips if about_never else slips[::-1]) if name]
        return named[0] if named else self._wrong_count(got, facts)

    def _wrong_count(self, got: AllocStatus, facts: Facts) -> str | None:
        """The inequality is right, and something else was counted."""
        required, num_seqs = facts["required"], facts["num_seqs"]
        counts = {
            "prompt-only": facts["of_prompt"],
            "not-the-waiting-one": facts["of_first"],
            "counted-for-each-sibling": required * num_seqs if required > 1 else required,
        }
        for name, count in counts.items():
            fits = self.account.answer(count) is got
            if count != required and fits and asked(self._counts_so, count):
                return name
        return "hits-subtracted" if self.account.caching and asked(self._subtracts_hits) else None

    def _counts_so(self, count: int) -> bool:
        """Whether an empty pool of `count` blocks is the smallest into which the class lets the same request."""

        def answer(total: int) -> Any:
            manager = self.subject(self.block_size, total, 1, 0.0, False)
            return manager.can_allocate(self.request_of(0, *self.operation[1:]))

        return answer(count) is AllocStatus.OK and (count == 1 or answer(count - 1) is AllocStatus.NEVER)

    def _subtracts_hits(self) -> bool:
        """Whether a prompt that is known hears another answer than one of the same length that is not."""
        manager = _with_an_allocate(self.subject(2, 4, 1, 0.0, True))
        manager.allocate(alone(0, range(6), 2))
        known, new = (manager.can_allocate(alone(1, range(start, start + 6), 2)) for start in (0, 100))
        return known is not new

    def _series(self) -> admission_rules.Answers:
        """What the class answers in pools of its own, at every edge of the right rule and of the wrong ones."""
        answers: list[str] = []
        for free in admission_rules.FREE:
            watermark = admission_rules.RESERVED / admission_rules.TOTAL
            manager = _with_an_allocate(
                self.subject(admission_rules.BLOCK_SIZE, admission_rules.TOTAL, 1, watermark, False)
            )
            if free < admission_rules.TOTAL:
                manager.allocate(
                    alone(
                        0,
                        range((admission_rules.TOTAL - free) * admission_rules.BLOCK_SIZE),
                        admission_rules.BLOCK_SIZE,
                    )
                )
            asked = (alone(1, range(num_tokens), admission_rules.BLOCK_SIZE) for num_tokens in admission_rules.TOKENS)
            answers += [manager.can_allocate(group).name for group in asked]
        return tuple(answers)


def _with_an_allocate(manager: Any) -> Any:
    """The manager, with refimpl's own `allocate` where it could inherit it: the learner's may not be written yet."""
    if isinstance(manager, BlockSpaceManager):
        vars(manager)["allocate"] = partial(BlockSpaceManager.allocate, manager)
    return manager


STEP = Step(
    exercise_id="05-can-allocate",
    title="now, later, or never",
    points=4,
    subject="BlockSpaceManager",
    writes=("_alloc_status", "can_allocate"),
    through=("can_allocate",),
    needs=("allocate", "free", *LOOKED_AT),
    reference=(BlockSpaceManager._alloc_status, BlockSpaceManager.can_allocate),
    properties=(DECISION, DECISION_KEEPS, REFUSES, REFUSAL_KEEPS, REQUEST_KEEPS, GOES_ON),
    misconceptions={
        "answer-not-returned": "Whoever asks must hear one of three answers: yours returned None.",
        "not-an-answer": "There are three answers and each is a member of `AllocStatus`, which is what the caller "
        "compares with: yours returned {got}.",
        "refused-not-answered": "A request that does not fit is no error, it is what the question is for: the "
        "answer is {expected}, and yours raised {error}.",
        "later-for-never": "{required} blocks and a watermark of {reserved} are more than an empty pool of "
        "{total}: as LATER this request stays at the head of the queue for ever, and everybody behind it, too.",
        "never-for-later": "NEVER is about the whole pool: {required} blocks do not come in with {free} free, but "
        "into an empty pool of {total} they would, so the answer is LATER.",
        "watermark-not-in-never": "An empty pool keeps its watermark, too: {required} of {total} blocks leave "
        "fewer than {reserved}, so waiting would not help, and the answer is NEVER.",
        "watermark-not-in-ok": "To fit is not enough: {required} of {free} free blocks leave fewer than {reserved} "
        "to those who are inside, so the answer is not OK.",
        "watermark-nowhere": "Admission leaves `watermark_blocks` free, {reserved} here, in both comparisons: "
        "yours said {got} for {required} blocks with {free} of {total} free.",
        "exactly-is-not-enough": "To leave exactly the watermark is allowed: {required} of {free} free blocks "
        "leave {reserved}, so the answer is OK.",
        "never-one-too-early": "To leave exactly the watermark is allowed, in an empty pool as well: {required} of "
        "{total} blocks leave {reserved}, so the answer is not NEVER.",
        "one-block-more": "The prompt needs {required} blocks, and the question is about these alone: to leave "
        "exactly the watermark, {reserved} here, is allowed, and yours wants one block more.",
        "room-for-the-next-token": "The token that comes next has no claim to a block yet, `append_slots` will ask "
        "for it: {num_tokens} tokens need {required} blocks.",
        "tokens-for-blocks": "The pool is counted in blocks and the request in tokens: {num_tokens} tokens fill "
        "{required} blocks, and it is the blocks that must fit.",
        "last-block-not-counted": "A block that is partly filled is taken whole: {num_tokens} tokens need "
        "{required} blocks.",
        "counted-for-each-sibling": "Siblings share the prompt's blocks: the {num_seqs} sequences of this request "
        "need {required} blocks together, and not {required} each.",
        "not-the-waiting-one": "Only sequences that are WAITING count: the request's first one is "
        "{first_status}, and the one that waits needs {required} blocks and not {of_first}.",
        "prompt-only": "A sequence that was thrown out brings along what it has produced: all its {num_tokens} "
        "tokens have to be computed, {required} blocks and not the {of_prompt} of its prompt.",
        "hits-subtracted": "What the cache may hold is not subtracted, that is the policy: the question is about "
        "all {required} blocks, with {free} free and a watermark of {reserved}.",
        "question-takes-blocks": "A question is a question: nothing is taken or set aside until `allocate` is called.",
        "request-changed": "A question leaves the request alone: statuses and sequences are the scheduler's business.",
        "nobody-waiting-answered": "Where nobody is WAITING there is nothing to answer: raise ValueError, as "
        "`_waiting_seqs` does.",
        "nobody-waiting-other-error": "A request in which nobody is WAITING is refused with ValueError, as "
        "`_waiting_seqs` does: yours ended in {error}.",
    },
    world=_DecisionWorld,
    examples=(
        History.of(
            sizes(4, 8, percent=25),
            ("can_allocate", 12, 1, 0),
            ("allocate", "a", 12, 1, 0),
            *[("can_allocate", num_tokens, 1, 0) for num_tokens in (12, 13, 24, 25)],
        ),
        History.of(sizes(16, 49, percent=1), ("can_allocate", 1002, 1, 0), ("can_allocate", 785, 1, 0)),
        History.of(sizes(4, 1, percent=1), ("can_allocate", 4, 1, 0), ("can_allocate", 5, 1, 0)),
        History.of(sizes(4, 4), ("can_allocate", 9, 2, 0), ("allocate", "a", 4, 1, 0), ("can_allocate", 8, 2, 0)),
        History.of(sizes(2, 6), *[("can_allocate", 4, 1, 0, kind) for kind in (FINISHED_FIRST, RUNNING_FIRST)]),
        History.of(sizes(2, 3), *[("can_allocate", 4, 1, 0, kind) for kind in (FINISHED_FIRST, RUNNING_FIRST)]),
        History.of(
            sizes(2, 3),
            ("can_allocate", 8, 1, 0, RECOMPUTED),
            *[("can_allocate", 2, 1, 0, kind) for kind in (NOBODY, SWAPPED_OUT)],
        ),
        History.of(sizes(2, 4, caching=True), ("allocate", "a", 6, 1, 0), ("can_allocate", 6, 1, 0), ("free", "a", 0)),
        History.of(
            sizes(2, 4, caching=True),
            ("allocate", "a", 6, 1, 0),
            ("free", "a", 0),
            ("allocate", "b", 2, 1, 1),
            ("can_allocate", 8, 1, 0),
        ),
        History.of(sizes(2, 4, caching=True), ("allocate", "a", 4, 1, 0), ("free", "a", 0), ("can_allocate", 7, 1, 1)),
        History.of(
            sizes(2, 4, 2, percent=25),
            ("allocate", "a", 4, 1, 0),
            ("swap_out", "a"),
            ("can_allocate", 6, 1, 0),
            ("can_swap_in", "a"),
        ),
    ),
    setups=random_sizes,
)
