"""Chapter 05: who may come in, how many blocks are kept back, and the block tables of whoever does.

The answers are compared with an account that counts owners and nothing else. Many a wrong inequality gives the right
answer almost everywhere, and several the same wrong one; so a wrong answer is named by asking the same class a short
series of questions and seeing which wrong rule gives all its answers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import Any

from refimpl.block_manager import AllocStatus, BlockSpaceManager, num_watermark_blocks
from refimpl.checks import admission_rules
from refimpl.checks.manager_comparison import STATE, TABLES, Facts
from refimpl.checks.manager_world import (
    DECISION,
    DECISION_KEEPS,
    GPU,
    REFUSAL_KEEPS,
    REFUSES,
    ManagerWorld,
    random_sizes,
    sizes,
)
from refimpl.checks.step import History, Log, Operation, Setup, Step, World, equal, is_whole, show
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

# 05-watermark

CUT_OFF = "the product is cut off after the point"
WHOLE = "the result is an int"
REFUSES_SHARES = "a share that is negative or not finite is refused with ValueError"

SHARES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.29, 0.5, 0.57, 0.9, 1.0, 1.5)
BAD_SHARES = (-0.1, -0.001, -1.0, math.inf, -math.inf, math.nan)


class _WatermarkWorld(World):
    """A function of a share and a number of blocks; each operation is one call."""

    @cached_property
    def always_raises(self) -> bool:
        """Whether it raises for an everyday share too, so that no error of its own is about the odd ones."""
        return not _returns(self.subject, 0.5, 100)

    def choices(self) -> Iterable[Operation]:
        most = self.setup["num_gpu_blocks"]
        for num_blocks in (most // 2, most):
            yield from (("num_watermark_blocks", share, num_blocks) for share in SHARES)
            yield from (("num_watermark_blocks", share, num_blocks) for share in BAD_SHARES)

    def _num_watermark_blocks(self, share: float, num_blocks: int) -> None:
        line = f"num_watermark_blocks({_share(share)}, {num_blocks})"
        facts: Facts = {"share": _share(share), "num_blocks": num_blocks}
        if not 0 <= share < math.inf:
            returned = "negative-accepted" if share < 0 else "not-finite-accepted"
            other = None if self.always_raises else "other-error" if share < 0 else "infinite-other-error"
            self.log.refuse(
                REFUSES_SHARES, line, self.subject, share, num_blocks, returned=returned, other_error=other, **facts
            )
            return
        of_pool = share * num_blocks
        expected = sum(1 for whole in range(1, 2 * num_blocks + 1) if whole <= of_pool)
        said = f"{of_pool:.6g}"
        facts["product"] = f"a little less than {said}" if said == str(expected + 1) else said
        facts["expected"] = expected
        refused = "zero-refused" if share == 0 else "above-one-refused" if share >= 1 else ""
        refused = "" if self.always_raises else refused
        got = self.log.call(line, self.subject, share, num_blocks, raises=(ValueError, refused), **facts)
        facts["got"] = show(got)
        name = None if equal(got, expected) else self._fault(got, expected, of_pool)
        self.log.expect(CUT_OFF, "the result", got, expected, name, **facts)
        should, but, is_whole = f"it should return the int {expected}", f"it returned {show(got)}", _is_number(got)
        name = None if is_whole else self._not_whole()
        self.log.hold(WHOLE, is_whole, should, but, name, **facts)

    def _not_whole(self) -> str | None:
        """The misconception behind a right number of the wrong type; none where a share would show it better."""
        of_1_3 = _asked(self.subject, 0.01, 130)
        return None if isinstance(of_1_3, float) and of_1_3 % 1 else "not-an-int"

    def _fault(self, got: Any, expected: int, of_pool: float) -> str | None:
        """The misconception behind a wrong number, told by what the function says of other pools."""
        if got is None:
            return "nothing-returned"
        if equal(got, of_pool):
            return "not-cut-off"
        if equal(_asked(self.subject, 0.9, 1000), 9):
            return "percent"
        if not equal(got, expected + 1):
            return None
        for num_blocks, more, name in ((130, 2, "rounded-up"), (199, 2, "rounded"), (30, 1, "at-least-one")):
            if equal(_asked(self.subject, 0.01, num_blocks), more):
                return name
        return "float-mended" if of_pool > expected + 0.99 else None


def _share(share: float) -> str:
    """A share as the learner would write it."""
    if math.isnan(share):
        return "math.nan"
    return f"{'-' * (share < 0)}math.inf" if math.isinf(share) else repr(share)


def _shares(*calls: tuple[float, int]) -> History:
    return History.of({"num_gpu_blocks": 100}, *(("num_watermark_blocks", *call) for call in calls))


def _asked(question: Callable[..., Any], *arguments: Any) -> Any:
    """What the learner's code answers where a name is looked for; None when it raises."""
    try:
        return question(*arguments)
    except Exception:  # noqa: BLE001  (a learner's code may raise anything, and this only looks)
        return None


def _returns(question: Callable[..., Any], *arguments: Any) -> bool:
    """Whether the learner's code answers at all."""
    return _asked(lambda: (question(*arguments),)) is not None


def _is_number(value: Any) -> bool:
    """Whether it is a whole number, and no bool."""
    return is_whole(value) and not isinstance(value, bool)


# What 05-can-allocate and 05-allocate share

REQUEST_KEEPS = "the request itself, its statuses and tokens, stays as it was"
OWN_LIST = "every sequence has a list of its own"
NOT_COMPUTED = "a block that has just been taken is not computed"
PREFIX_LASTS = "the beginning of a prompt is kept for longer than its end"
GOES_ON = "allocate and free go on as before"

WAITS, NOBODY, RECOMPUTED = "", "nobody waits", "thrown out once"
FINISHED_FIRST, RUNNING_FIRST = "after one that has finished", "after one that runs"
KINDS = (RECOMPUTED, FINISHED_FIRST, RUNNING_FIRST, NOBODY)


class _AdmissionWorld(ManagerWorld):
    """Requests of all kinds: thrown out with half of their tokens produced, beside siblings that do not wait."""

    changed = False  # whether the last call changed the request that it was given

    def kinds(self, num_tokens: int) -> Iterator[Operation]:
        """What follows the name of the operation, and its key if it has one."""
        for kind in KINDS:
            if num_tokens > 1 or kind != RECOMPUTED:
                yield num_tokens, 1 + (num_tokens + len(self.groups)) % 2, len(self.groups) % 2, kind

    def request_of(self, number: int, num_tokens: int, num_seqs: int, text: int, kind: str = WAITS) -> SequenceGroup:
        """The request of one operation."""
        group = self._request(number, num_tokens, num_seqs, text)
        seqs = group.get_seqs()
        if kind == RECOMPUTED:
            cut = (num_tokens + 1) // 2
            again = [Sequence(seq.seq_id, seq.get_token_ids()[:cut], self.block_size) for seq in seqs]
            for seq, whole in zip(again, seqs, strict=True):
                for token_id in whole.get_token_ids(cut):
                    seq.append_token_id(token_id)
            return SequenceGroup(group.request_id, again)
        if kind in (FINISHED_FIRST, RUNNING_FIRST):
            sibling = Sequence(100 * number + 50, seqs[0].get_token_ids(), self.block_size)
            for token_id in range(2 * self.block_size):
                sibling.append_token_id(token_id)
            ended = kind == FINISHED_FIRST
            sibling.status = SequenceStatus.FINISHED_STOPPED if ended else SequenceStatus.RUNNING
            return SequenceGroup(group.request_id, [sibling, *seqs])
        if kind == NOBODY:
            self._set_status(seqs, SequenceStatus.RUNNING)
        return group

    def words(self, num_tokens: int, num_seqs: int, text: int, kind: str = WAITS) -> str:
        """The request as the learner reads it."""
        parts = [f"num_tokens={num_tokens}"]
        parts += [f"num_seqs={num_seqs}"] * (num_seqs > 1) + [f"text={text}"] * self.account.caching
        more = {
            RECOMPUTED: f"num_output_tokens={num_tokens // 2}",
            FINISHED_FIRST: f"finished=[{num_tokens + 2 * self.block_size} tokens]",
            RUNNING_FIRST: f"running=[{num_tokens + 2 * self.block_size} tokens]",
            NOBODY: "status=RUNNING",
        }
        return f"request({', '.join(parts + [said for name, said in more.items() if name == kind])})"

    def facts_of(self, group: SequenceGroup) -> Facts:
        """The numbers that sentences speak of."""
        waiting = group.get_seqs(SequenceStatus.WAITING) or group.get_seqs()
        first, any_first = waiting[0], group.get_seqs()[0]
        required = self.account.required(first.get_len())
        return {
            "num_seqs": len(waiting),
            "num_others": len(group.get_seqs()) - len(waiting),
            "num_tokens": first.get_len(),
            "required": required,
            "of_prompt": self.account.required(first.get_prompt_len()),
            "of_first": self.account.required(any_first.get_len()),
            "first_status": any_first.status.name,
            "known": required - self._num_missing(first),
            "free": self.account.free(GPU),
            "total": self.account.total[GPU],
            "reserved": self.account.watermark_blocks,
        }

    def _num_missing(self, seq: Sequence) -> int:
        """Blocks of the sequence that nobody holds now, by the tables of everybody else."""
        if not self.account.caching:
            return self.account.required(seq.get_len())
        tokens, size = tuple(seq.get_token_ids()), self.block_size
        held = {block.content for table in self.account.tables.values() for block in table}
        return sum(tokens[: (i + 1) * size] not in held for i in range(self.account.required(len(tokens))))

    def _watched(self, function: Any) -> Callable[..., Any]:
        """The function, and whether a request that it is given is afterwards still what it was."""

        def call(*arguments: Any) -> Any:
            groups = [argument for argument in arguments if isinstance(argument, SequenceGroup)]
            before = [_as_it_is(group) for group in groups]
            try:
                return function(*arguments)
            finally:
                self.changed = before != [_as_it_is(group) for group in groups]

        return call

    def _call(self, line: str, function: Any, *arguments: Any, facts: Facts) -> Any:
        return super()._call(line, self._watched(function), *arguments, facts=facts)

    def _refuse(self, line: str, function: Any, *arguments: Any, facts: Facts) -> None:
        super()._refuse(line, self._watched(function), *arguments, facts=facts)

    def _compare(self, facts: Facts, keeps: str = "") -> None:
        super()._compare(facts, keeps)
        if self.operation[0] in ("can_allocate", "allocate"):
            should = "the request's sequences and their statuses should stay as they were"
            self.log.hold(REQUEST_KEEPS, not self.changed, should, "something in it has changed", "request-changed")


def _alone(seq_id: int, tokens: range, block_size: int) -> SequenceGroup:
    """A request of one sequence."""
    return SequenceGroup(f"request {seq_id}", [Sequence(seq_id, tokens, block_size)])


def _as_it_is(group: SequenceGroup) -> list[tuple[int, SequenceStatus, list[int]]]:
    return [(seq.seq_id, seq.status, seq.get_token_ids()) for seq in group.get_seqs()]


# 05-can-allocate


class _DecisionWorld(_AdmissionWorld):
    """Questions, while blocks come and go. They are taken by refimpl's own `allocate`, which is not the question."""

    verbs = ("can_allocate", "allocate", "free")

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        _with_an_allocate(self.manager)

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
        if kind == NOBODY:
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
        return _returns(lambda: self.subject(2, 8, 1, 0.0, False).can_allocate(_alone(0, range(1), 2)))

    def fault(self, symptom: str, facts: Facts) -> str | None:
        if self.operation[0] != "can_allocate":
            return None
        if symptom != "answer":
            return "question-takes-blocks"
        got = facts["got"]
        if not isinstance(got, AllocStatus):
            facts["got"] = show(got)
            return "answer-not-returned" if got is None else "not-an-answer"
        slips = admission_rules.slips().get(_asked(self._series))
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
            if count != required and fits and _asked(self._counts_so, count):
                return name
        return "hits-subtracted" if self.account.caching and _asked(self._subtracts_hits) else None

    def _counts_so(self, count: int) -> bool:
        """Whether an empty pool of `count` blocks is the smallest into which the class lets the same request."""

        def answer(total: int) -> Any:
            manager = self.subject(self.block_size, total, 1, 0.0, False)
            return manager.can_allocate(self.request_of(0, *self.operation[1:]))

        return answer(count) is AllocStatus.OK and (count == 1 or answer(count - 1) is AllocStatus.NEVER)

    def _subtracts_hits(self) -> bool:
        """Whether a prompt that is known hears another answer than one of the same length that is not."""
        manager = _with_an_allocate(self.subject(2, 4, 1, 0.0, True))
        manager.allocate(_alone(0, range(6), 2))
        known, new = (manager.can_allocate(_alone(1, range(start, start + 6), 2)) for start in (0, 100))
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
                    _alone(
                        0,
                        range((admission_rules.TOTAL - free) * admission_rules.BLOCK_SIZE),
                        admission_rules.BLOCK_SIZE,
                    )
                )
            asked = (_alone(1, range(num_tokens), admission_rules.BLOCK_SIZE) for num_tokens in admission_rules.TOKENS)
            answers += [manager.can_allocate(group).name for group in asked]
        return tuple(answers)


def _with_an_allocate(manager: Any) -> Any:
    """The manager, with refimpl's own `allocate` where it could inherit it: the learner's may not be written yet."""
    if isinstance(manager, BlockSpaceManager):
        vars(manager)["allocate"] = partial(BlockSpaceManager.allocate, manager)
    return manager


# 05-allocate

COMES_BACK, REFUSED_BETWEEN = "a prompt that comes back", "a prompt that comes back after a refusal"


class _TablesWorld(_AdmissionWorld):
    """Requests come in, grow where no content is kept, and go."""

    verbs: tuple[str, ...] = ("allocate", "free", "append_slots")

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        if self.account.caching:  # what growing does with keys is chapter 06's
            self.verbs = ("allocate", "free")
        self.why = ""  # the last request had to be refused
        self.over = False
        self.let_in: list[str] = []  # the sequences of the last request that waited

    def choices(self) -> Iterable[Operation]:
        if self.over:
            return
        yield from super().choices()
        new = self.names.new_key()
        for num_tokens in (1, self.block_size + 1, 2 * self.block_size, 2 * self.block_size + 1):
            yield from (("allocate", new, *rest) for rest in self.kinds(num_tokens))
        for key in (COMES_BACK, REFUSED_BETWEEN):
            if self.possible(("allocate", key)):
                yield from [("allocate", key)] * 10

    def possible(self, operation: Operation) -> bool:
        verb, key, *arguments = operation
        if self.over:
            return False
        if key in (COMES_BACK, REFUSED_BETWEEN):
            return self.account.caching and self.account.total[GPU] == 4 and not self.groups
        if verb == "allocate" and not arguments:
            return key in self.names and self._some_have_tables(key)
        if verb == "append_slots" and not self.account.free(GPU):  # so is growing without room
            return False
        return super().possible(operation)

    def _some_have_tables(self, key: Any) -> bool:
        return any(seq.seq_id in self.account.tables for seq in self.groups[key].get_seqs())

    def _allocate(self, key: Any, *arguments: Any) -> None:
        self.why = ""
        if key == COMES_BACK:
            self._come_back()
        elif key == REFUSED_BETWEEN:
            self._come_back_after_a_refusal()
        elif not arguments:
            first = self.groups[key].get_seqs()[0]
            self.why = "again" if first.seq_id in self.account.tables else "again, but for the first"
            self._allocate_again(key)
        else:
            self._allocate_new(key, *arguments)

    def _allocate_new(self, key: Any, num_tokens: int, num_seqs: int, text: int, kind: str = WAITS) -> None:
        name = self.names.add(key)
        group = self.groups[key] = self.request_of(len(self.groups), num_tokens, num_seqs, text, kind)
        self.texts[key] = text
        self.log.note(f"{name} = {self.words(num_tokens, num_seqs, text, kind)}")
        facts, line = self.facts_of(group) | {"group": name}, f"manager.allocate({name})"
        waiting = group.get_seqs(SequenceStatus.WAITING)
        tokens = tuple(waiting[0].get_token_ids()) if waiting else ()
        if not waiting:
            self.why = "nobody"
        elif self.account.allocate([seq.seq_id for seq in waiting], tokens) is None:
            self.why = "no room"
        if self.why:
            self._refuse(line, self.manager.allocate, group, facts=facts)
            return
        self._call(line, self.manager.allocate, group, facts=facts)
        self._set_status(waiting, SequenceStatus.RUNNING)
        let_in = {self._name_of(key, seq): seq for seq in waiting}
        self.let_in = list(let_in)
        self._look_at_lists(let_in, facts)
        self._compare(facts)

    def _append_slots(self, key: Any, i: int, token: int, count: int) -> None:
        """One token more, which shows whether two sequences have one list."""
        seq, name = self.groups[key].get_seqs()[i], self._seq_name(key, i)
        seq.append_token_id(token)
        self.account.append(seq.seq_id, tuple(seq.get_token_ids()))
        line = f"{name}.append_token_id({token}); manager.append_slots({name})"
        self._call(line, self.manager.append_slots, seq, facts={"whose": name})
        self._compare({})

    def _name_of(self, key: Any, seq: Sequence) -> str:
        return self._seq_name(key, self.groups[key].get_seqs().index(seq))

    def _look_at_lists(self, seqs: dict[str, Sequence], facts: Facts) -> None:
        """Each new table is a list of blocks, and no list is two sequences' table."""
        seen: dict[int, str] = {}  # id of a list -> whose table it is
        for name, seq in seqs.items():
            table = self.manager.block_tables.get(seq.seq_id)
            if not isinstance(table, list):
                continue
            numbers = [entry for entry in table if _is_number(entry)]
            self.log.hold(TABLES, not numbers, f"{name}'s block table should hold blocks", f"it holds {show(table)}",
                          "numbers-instead-of-blocks", numbers=show(numbers))  # fmt: skip
            other = seen.setdefault(id(table), name)
            self.log.hold(OWN_LIST, other == name, f"{name} should have a list of its own",
                          f"it has the list of {other}", "same-list", name=name, other=other)  # fmt: skip

    def _come_back(self) -> None:
        """A prompt of three blocks comes, goes, and comes again after another of two, in a pool of four."""
        a, c = self._come_and_go(3)
        b = self._request(1, 2 * self.block_size, 1, 1)
        self._let_in("b", b)
        self.log.call("manager.free(b.seqs[0])", self.manager.free, b.get_seqs()[0])
        self._let_in("c", c)
        found, again = self._computed(c), self._numbers(c)
        name = "prefix-goes-first" if len(a) == len(again) == 3 and a[:2] != again[:2] else None
        self.log.hold(PREFIX_LASTS, len(found) == 2, "2 of its blocks should be found computed", f"{len(found)} are",
                      name, found=len(found))  # fmt: skip

    def _come_back_after_a_refusal(self) -> None:
        """A prompt of two blocks comes, goes, and comes again after another had to be refused."""
        _, c = self._come_and_go(2)
        b, self.why = self._request(1, 5 * self.block_size, 1, 1), "no room"
        self._refuse(self._enters("b", b), self.manager.allocate, b, facts=self.facts_of(b))
        self._let_in("c", c)
        found = self._computed(c)
        self.log.hold(REFUSAL_KEEPS, len(found) == 1, "1 of its blocks should be found computed",
                      f"{len(found)} are", "taken-and-given-back")  # fmt: skip

    def _come_and_go(self, num_blocks: int) -> tuple[list[Any], SequenceGroup]:
        """A request is computed and ends; the numbers of its blocks, and a second request of the same prompt."""
        self.over = True
        a, c = (self._request(number, num_blocks * self.block_size, 1, 0) for number in (0, 2))
        self._let_in("a", a)
        self._set_status(a.get_seqs(), SequenceStatus.RUNNING)
        table = self.manager.block_tables.get(a.get_seqs()[0].seq_id, [])
        self.log.expect(TABLES, "the number of blocks in a's table", len(table), num_blocks)
        self.log.hold(NOT_COMPUTED, not self._computed(a), "none of its blocks should count as computed", "some do",
                      "computed-too-early")  # fmt: skip
        self._compare_covers(table)
        before = self._numbers(a)
        self.log.call("manager.mark_blocks_as_computed(a)", self.manager.mark_blocks_as_computed, a)
        self.log.call("manager.free(a.seqs[0])", self.manager.free, a.get_seqs()[0])
        return before, c

    def _enters(self, name: str, group: SequenceGroup) -> str:
        """The line in which a request of this name comes in; the second of the three has another text."""
        words = self.words(group.get_seqs()[0].get_len(), 1, int(name == "b"))
        return f"{name} = {words}; manager.allocate({name})"

    def _let_in(self, name: str, group: SequenceGroup) -> None:
        self.log.call(self._enters(name, group), self.manager.allocate, group)

    def _compare_covers(self, table: list[Any]) -> None:
        """How many tokens a block's key covers, where a block says it; that they grow is seen by what is kept."""
        covers: list[Any] = [getattr(block, "num_hashed_tokens", None) for block in table]
        expected = [(i + 1) * self.block_size for i in range(len(table))]
        if not all(isinstance(number, int) for number in covers) or sorted(set(covers)) != covers:
            return
        self.log.hold(PREFIX_LASTS, covers == expected, f"their keys should cover {expected} tokens",
                      f"they cover {covers}", "covers-miscounted", covers=covers, expected=expected)  # fmt: skip

    def _list(self, method: str, asked: Any) -> list[Any]:
        """What the manager answers to a question that has a list for an answer."""
        found: list[Any] = self.log.ask(f"manager.{method}(...)", lambda: list(getattr(self.manager, method)(asked)))
        return found

    def _numbers(self, group: SequenceGroup) -> list[Any]:
        return self._list("get_block_table", group.get_seqs()[0])

    def _computed(self, group: SequenceGroup) -> list[Any]:
        return self._list("get_common_computed_block_ids", group.get_seqs())

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        if self.operation[0] != "allocate":
            return None
        if facts["required"] > facts["free"]:
            return ValueError, "refused-in-spite-of-hits"
        kept = facts["free"] - facts["required"] >= facts["reserved"]
        return ValueError, "refused-with-room" if kept else "watermark-asked-again"

    def refused(self, facts: Facts) -> tuple[str | None, str | None]:
        returned = {
            "again": "second-table-accepted",
            "again, but for the first": "only-the-first-asked",
            "nobody": "nobody-waiting-accepted",
            "no room": "takes-what-there-is",
        }[self.why]
        if not self.lets_in:
            return returned, None
        return returned, "nobody-waiting-other-error" if self.why == "nobody" else "other-error"

    @cached_property
    def lets_in(self) -> bool:
        """Whether a request that is alone comes in: if not, no error of its own is about the refusals."""
        return _returns(self._blocks_of, 5)

    def fault(self, symptom: str, facts: Facts) -> str | None:
        if self.operation[0] != "allocate":
            return None
        if self.why:
            return "half-done" if self.why == "no room" else "changed-before-refusing"
        name = facts.get("whose", "")
        if symptom in ("no-table", "left-table", "length") and not name.startswith(f"{facts['group']}."):
            return None  # somebody else's table has suffered
        if symptom == "no-table":
            return "table-not-kept" if name == self.let_in[0] else "only-the-first"
        if symptom == "left-table":
            return "everybody-gets-a-table"
        if symptom == "length":
            return self._wrong_length(facts)
        if symptom in ("not-shared", "mixed-up"):
            return self._wrong_block(symptom, facts)
        return self._wrong_owners(facts) if symptom == "owners" else None

    def _wrong_length(self, facts: Facts) -> str | None:
        if _asked(self._blocks_of, 5) != 3:  # of a sequence that is alone and new, so nothing else is to blame
            return "one-block-more" if equal(facts["got"], facts["expected"] + 1) else None
        for name in ("of_prompt", "of_first"):
            if facts[name] != facts["expected"] and equal(facts["got"], facts[name]):
                return "prompt-only" if name == "of_prompt" else "not-the-waiting-one"
        return "one-block-more" if equal(facts["got"], facts["expected"] + 1) else None

    def _blocks_of(self, num_tokens: int) -> int:
        """How many blocks of 2 the class gives to so many tokens, in a pool of its own."""
        manager, group = self.subject(2, 8, 1, 0.0, False), _alone(0, range(num_tokens), 2)
        manager.allocate(group)
        return len(manager.get_block_table(group.get_seqs()[0]))

    def _wrong_block(self, symptom: str, facts: Facts) -> str | None:
        """A block that should be shared and is not, by siblings or by content; or one that should not and is."""
        whose, other = facts["whose"], facts["other"]
        if whose == other:
            return "one-block-many-times"
        if symptom == "not-shared" and whose.partition(".")[0] == other.partition(".")[0]:
            return "blocks-for-each"
        return _asked(self._of_one_text) if self.account.caching else None

    def _of_one_text(self) -> str | None:
        """What becomes of a prompt of one block that another goes on from, in a pool of its own."""
        manager = self.subject(2, 8, 1, 0.0, True)
        short, long = (_alone(seq_id, range(num_tokens), 2) for seq_id, num_tokens in enumerate((2, 4)))
        for group in (short, long):
            manager.allocate(group)
        (known,), table = (manager.get_block_table(group.get_seqs()[0]) for group in (short, long))
        if known not in table:
            return "content-not-asked-for"
        return "upside-down" if table[-1] == known else None

    def _wrong_owners(self, facts: Facts) -> str | None:
        got, owners, siblings = facts["got"], facts["expected"], facts["num_seqs"]
        if siblings > 1 and equal(got, owners - siblings + 1):
            return "siblings-not-counted"
        if equal(got, owners + 1) and _asked(self._owners_of_one) == 2:
            return "first-counted-twice"
        others = facts["num_others"]
        return "others-counted" if others and equal(got, owners + others) else None

    def _owners_of_one(self) -> Any:
        """What the class counts on the block of a request that is alone in a pool of its own."""
        manager = self.subject(2, 8, 1, 0.0, False)
        manager.allocate(_alone(0, range(1), 2))
        return manager.block_tables[0][0].ref_count


def _sizes(rng: random.Random) -> Setup:
    """Now and then a pool in which a prompt can come back."""
    return sizes(rng.choice((1, 2, 3)), 4, caching=True) if rng.random() < 0.2 else random_sizes(rng)


def _a_pool(rng: random.Random) -> Setup:
    return {"num_gpu_blocks": rng.choice((1, 2, 10, 64, 99, 100, 120, 199, 200))}


LOOKED_AT = ("get_block_table", "get_num_free_gpu_blocks", "get_num_free_cpu_blocks")  # after every operation
BOTH_GO = (("free", "a", 0), ("free", "a", 1))

STEPS = (
    Step(
        exercise_id="05-watermark",
        title="how many blocks are kept back",
        points=2,
        subject="num_watermark_blocks",
        reference=(num_watermark_blocks,),
        properties=(CUT_OFF, WHOLE, REFUSES_SHARES),
        misconceptions={
            "nothing-returned": "Whoever asks needs the number: yours returned None.",
            "not-cut-off": "Blocks are kept back whole or not at all: {share} of {num_blocks} is {product}, and what "
            "comes after the point is cut off, which leaves {expected}.",
            "rounded": "The product is cut off and not rounded: {share} of {num_blocks} is {product}, which makes "
            "{expected}, and yours says {got}.",
            "rounded-up": "What is left of a block at the end is not kept back: {share} of {num_blocks} is {product}, "
            "which makes {expected}, and yours says {got}.",
            "at-least-one": "A small pool keeps nothing back, and nobody makes up for it: {share} of {num_blocks} is "
            "{product}, which makes {expected}, and yours says {got}.",
            "float-mended": "The product is cut off as the float has it: {share} of {num_blocks} is {product}, so vLLM "
            "keeps {expected} back, and yours says {got}.",
            "percent": "The share is of 1 and not of 100: {share} of {num_blocks} blocks is {product}, and yours says "
            "{got}.",
            "not-an-int": "Blocks are counted in whole numbers, and their type is int: yours returned {got}.",
            "negative-accepted": "Less than nothing cannot be kept back: a share of {share} is refused with "
            "ValueError, however small the number of blocks that it would make.",
            "not-finite-accepted": "A share of {share} is no share of anything: refuse it with ValueError.",
            "infinite-other-error": "A share of {share} is refused with ValueError, raised on purpose: yours ran into "
            "{error}.",
            "other-error": "The error for a share below 0 is ValueError, since that is what a caller waits for: yours "
            "raised {error}.",
            "zero-refused": "A share of 0 is a policy, whoever fits comes in, and it makes 0 blocks: yours raised "
            "{error}.",
            "above-one-refused": "A share of 1 or more is allowed, such a pool admits nobody and says so: {share} of "
            "{num_blocks} is {expected} blocks, and yours raised {error}.",
        },
        world=_WatermarkWorld,
        examples=(
            _shares((0.01, 1000), (0.01, 64), (0.29, 100), (-0.01, 100)),
            _shares((0.01, 1), (0.01, 99), (0.01, 100), (0.01, 199)),
            _shares((0.0, 100), (1.0, 100), (1.5, 100), (0.5, 0)),
            _shares((math.inf, 100), (math.nan, 100), (-math.inf, 100), (-0.001, 64)),
        ),
        setups=_a_pool,
    ),
    Step(
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
            "question-takes-blocks": "A question is a question: nothing is taken or set aside until `allocate` is "
            "called.",
            "request-changed": "A question leaves the request alone: statuses and sequences are the scheduler's "
            "business.",
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
            History.of(sizes(16, 49, percent=1), ("can_allocate", 1002, 1, 0)),
            History.of(sizes(4, 1, percent=1), ("can_allocate", 4, 1, 0), ("can_allocate", 5, 1, 0)),
            History.of(sizes(4, 4), ("can_allocate", 9, 2, 0), ("allocate", "a", 4, 1, 0), ("can_allocate", 8, 2, 0)),
            History.of(sizes(2, 6), *[("can_allocate", 4, 1, 0, kind) for kind in (FINISHED_FIRST, RUNNING_FIRST)]),
            History.of(sizes(2, 3), *[("can_allocate", 4, 1, 0, kind) for kind in (FINISHED_FIRST, RUNNING_FIRST)]),
            History.of(sizes(2, 3), ("can_allocate", 8, 1, 0, RECOMPUTED), ("can_allocate", 2, 1, 0, NOBODY)),
            History.of(
                sizes(2, 4, caching=True), ("allocate", "a", 6, 1, 0), ("can_allocate", 6, 1, 0), ("free", "a", 0)
            ),
            History.of(
                sizes(2, 4, caching=True),
                ("allocate", "a", 6, 1, 0),
                ("free", "a", 0),
                ("allocate", "b", 2, 1, 1),
                ("can_allocate", 8, 1, 0),
            ),
        ),
        setups=random_sizes,
    ),
    Step(
        exercise_id="05-allocate",
        title="block tables for whoever comes in",
        points=4,
        subject="BlockSpaceManager",
        writes=("allocate",),
        needs=("free", "append_slots", *LOOKED_AT, "mark_blocks_as_computed", "get_common_computed_block_ids"),
        reference=(BlockSpaceManager.allocate,),
        properties=(*STATE, OWN_LIST, NOT_COMPUTED, PREFIX_LASTS, REQUEST_KEEPS, REFUSES, REFUSAL_KEEPS),
        misconceptions={
            "table-not-kept": "A block that is taken must stand in a table: put the list into `block_tables` under "
            "the sequence's `seq_id`, or nobody will ever give it back.",
            "only-the-first": "Every sequence that is WAITING gets a table: this request has {num_seqs}, and {whose} "
            "has none.",
            "everybody-gets-a-table": "Only sequences that are WAITING get blocks: {whose} was not, and has a table "
            "now.",
            "same-list": "Siblings grow apart, so they need two lists: {name} was given the list of {other}, and what "
            "one of them appends would stand in both tables.",
            "blocks-for-each": "The prompt is the same for all siblings, and so are its blocks: {num_seqs} sequences "
            "take {required} blocks together, and yours gave {whose} others than {other}.",
            "one-block-many-times": "Every logical block needs a block of its own, one call of the allocator for each: "
            "block {number} stands in {whose}'s table more than once.",
            "siblings-not-counted": "A block's `ref_count` is the number of tables that hold it: block {number} stands "
            "in {expected} tables now, and its count is {got}.",
            "first-counted-twice": "A block that comes from the allocator has its first owner already, so only the "
            "others are added: the count of block {number} should be {expected} now, and is {got}.",
            "others-counted": "An owner is who has a table, and siblings that do not wait get none: the count of block "
            "{number} should be {expected} now, and is {got}.",
            "one-block-more": "`allocate` covers the tokens that are there, and the next one is chapter 6's business: "
            "{num_tokens} tokens need {expected} blocks, and {whose} got {got}.",
            "prompt-only": "A sequence that was thrown out needs room for what it has produced as well: its "
            "{num_tokens} tokens need {expected} blocks, and {whose} got the {got} of its prompt.",
            "not-the-waiting-one": "The first sequence that is WAITING says how many blocks are needed: it needs "
            "{expected}, and {whose} got {got}, as the {first_status} one would need.",
            "numbers-instead-of-blocks": "A block table holds the blocks and not their numbers, because the owner "
            "count is on the block: yours holds {numbers}.",
            "content-not-asked-for": "With caching on, a block is asked for by its key: {whose} begins with the text "
            "of {other} and should have got the block that holds it.",
            "upside-down": "Logical block 0 stands first in the table: {whose} and {other} begin with the same text, "
            "and the block that holds it stands elsewhere in your table.",
            "prefix-goes-first": "Tell the allocator how many tokens each key covers, (i + 1) times the block size: "
            "without it a prompt's beginning is given away before its end, and {found} of 2 blocks were found again.",
            "covers-miscounted": "A key covers the tokens from the start of the sequence to the end of its block: "
            "{expected} for the blocks of this prompt, and yours told the allocator {covers}.",
            "computed-too-early": "A block that has just been taken holds nothing yet: it is marked as computed by "
            "`mark_blocks_as_computed`, when the step that computes it has been scheduled.",
            "half-done": "All or nothing ({required} blocks needed, {free} free): look before you take the first one, "
            "or nobody gives back what was taken before the error.",
            "taken-and-given-back": "To give back what was taken is not to leave it alone: the blocks hold other "
            "content by then, and a prompt that was known is found no more, so look before you take.",
            "takes-what-there-is": "Half a prompt is of no use, and silence is no answer: where there is too little "
            "room ({required} blocks needed, {free} free) raise ValueError.",
            "second-table-accepted": "A sequence that has a block table keeps it: a second one would replace the "
            "first, and the first one's blocks could never be given back, so raise ValueError.",
            "only-the-first-asked": "It is enough that one WAITING sequence has a table already, be it the first or "
            "another: a second one would replace it, and its blocks would be lost, so raise ValueError.",
            "changed-before-refusing": "A call that is refused leaves everything as it was: ask all the questions "
            "first, and take or give back nothing before the last of them.",
            "other-error": "The errors of `allocate` are ValueErrors, since that is what a caller waits for: yours "
            "ended in {error}.",
            "nobody-waiting-accepted": "A request in which nobody is WAITING gets nothing, and the caller should hear "
            "of it: raise ValueError, as `_waiting_seqs` does.",
            "nobody-waiting-other-error": "A request in which nobody is WAITING is refused with ValueError, as "
            "`_waiting_seqs` does: yours ended in {error}.",
            "watermark-asked-again": "The watermark was the question of `can_allocate`, and it is not asked again: "
            "there was room ({required} blocks needed, {free} free), and yours raised {error}.",
            "refused-with-room": "There was room ({required} blocks needed, {free} free), and yours raised {error}.",
            "refused-in-spite-of-hits": "A block that is held already and found by its key takes no free one: "
            "{known} of the {required} blocks are known ({free} free), and yours raised {error}.",
            "request-changed": "Statuses are the scheduler's business: `allocate` hands out blocks and leaves the "
            "request as it is.",
        },
        world=_TablesWorld,
        examples=(
            History.of(sizes(4, 4), ("allocate", "a", 5, 2, 0), ("allocate", "a"), ("allocate", "b", 9, 1, 0)),
            History.of(sizes(4, 4), ("allocate", "a", 2, 1, 0), ("allocate", "a"), ("free", "a", 0)),
            History.of(sizes(2, 4, percent=50), ("allocate", "a", 6, 1, 0)),
            History.of(sizes(2, 3), ("allocate", "a", 4, 2, 0)),
            History.of(sizes(4, 8), ("allocate", "a", 6, 2, 0), ("append_slots", "a", 0, 0, 1), *BOTH_GO),
            History.of(sizes(4, 4, caching=True), ("allocate", "a", 6, 2, 0), *BOTH_GO),
            History.of(sizes(2, 8, caching=True), ("allocate", "a", 2, 1, 0), ("allocate", "b", 4, 1, 0)),
            History.of(sizes(2, 4, caching=True), ("allocate", "a", 6, 1, 0), ("allocate", "b", 6, 1, 0)),
            History.of(sizes(2, 9), *[("allocate", kind, 4, 1, 0, kind) for kind in KINDS]),
            *[History.of(sizes(2, 9), ("allocate", "a", 4, 2, 0), ("free", "a", i), ("allocate", "a")) for i in (0, 1)],
            History.of(sizes(2, 4, caching=True), ("allocate", COMES_BACK)),
            History.of(sizes(2, 4, caching=True), ("allocate", REFUSED_BETWEEN)),
        ),
        setups=_sizes,
    ),
)
