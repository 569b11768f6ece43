"""Chapter 06: a slot for the newest token, the question before it, the fork, copy on write, and the end.

Each step is played on the learner's manager with refimpl's answers to the other steps of the chapter, so that a stub
further down fails no check further up; a manager that inherits nothing from refimpl is played as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from refimpl.block import Device, PhysicalTokenBlock
from refimpl.block_manager import BlockSpaceManager
from refimpl.checks.manager_account import Account, Block
from refimpl.checks.manager_comparison import KEPT, PAIRS, STATE, Comparison, Facts
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
from refimpl.checks.step import History, Log, Operation, Setup, Step, equal
from refimpl.checks.thoughts import Theories
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

ANSWERS = {  # method of this chapter -> refimpl's
    "can_append_slots": BlockSpaceManager.can_append_slots,
    "append_slots": BlockSpaceManager.append_slots,
    "fork": BlockSpaceManager.fork,
    "_copy_on_write": BlockSpaceManager._copy_on_write,
    "free": BlockSpaceManager.free,
    "_free_block_table": BlockSpaceManager._free_block_table,
}

GOES_ON = "everything else goes on as before"  # what is seen after operations that are not the step's own


class _Comparison(Comparison):
    """As it is; what is seen after an operation that is not the step's own counts as one property."""

    aside = False  # whether the operation is such a one

    def _expect(self, name: str, what: str, got: Any, expected: Any, symptom: str, facts: Facts) -> None:
        if symptom == "owners":
            facts = facts | {"tables": f"{expected} table{'s' * (expected > 1)}"}
        super()._expect(GOES_ON if self.aside else name, what, got, expected, symptom, facts)

    def _hold(self, name: str, holds: bool, should: str, but: str, symptom: str, facts: Facts) -> None:
        super()._hold(GOES_ON if self.aside else name, holds, should, but, symptom, facts)


class _ChapterWorld(ManagerWorld):
    """A manager whose answers to the step at hand are the learner's, and to the others of this chapter refimpl's."""

    verb = ""  # the step's own operation
    own: tuple[str, ...] = ()  # the answers that are looked at

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        if issubclass(subject, BlockSpaceManager):
            others = {name: answer for name, answer in ANSWERS.items() if name not in self.own}
            subject = type(subject.__name__, (subject,), others)
        super().__init__(subject, setup, log)
        self.worked = False  # whether the step's own operation has done in this history what it must
        self.comparison = self.seen = _Comparison(log, self.manager, self.account, self.fault)

    def choices(self) -> Iterable[Operation]:
        """Every third operation is the step's own, once there is something to do it to."""
        found = list(super().choices())
        own = [operation for operation in found if operation[0] == self.verb]
        return found + own * (len(found) // (2 * len(own)) if own else 0)

    def perform(self, operation: Operation) -> None:
        """As `ManagerWorld`; what is compared is a merit of the answer once the step's own work has been done right."""
        self.seen.aside = operation[0] != self.verb
        is_work = not self.seen.aside and self.is_work(operation)
        before = dict(self.log.tally)
        try:
            super().perform(operation)
            self.worked |= is_work
        finally:
            if not self.worked:
                self.log.take_back(before)

    def is_work(self, operation: Operation) -> bool:
        """Whether this operation, one of the step's own, cannot go right by doing nothing."""
        return True

    @property
    def is_own(self) -> bool:
        """Whether the operation is the step's own."""
        return bool(self.operation) and self.operation[0] == self.verb

    @property
    def seq(self) -> Sequence:
        """The sequence that the operation is about."""
        _, key, i = self.operation[:3]
        return self.groups[key].seqs[i]

    def _call(self, line: str, function: Any, *arguments: Any, facts: Facts) -> Any:
        """As `ManagerWorld`; then see that the sequences are as they were."""
        before = self._statuses()
        got = super()._call(line, function, *arguments, facts=facts)
        if self.is_own:
            self._insist_on_statuses(before, self.keeps_status)
        if self.is_own and self.verb == "append_slots":
            now, what = self.seq.get_len(), f"the number of tokens of {facts['seq']}"
            self.log.expect(KEPT, what, now, facts["length"], "token-appended-again", **facts, now=now)
        return got

    def _refuse(self, line: str, function: Any, *arguments: Any, facts: Facts) -> None:
        if self.is_own:
            super()._refuse(line, function, *arguments, facts=facts)
        else:
            line = f"{line}    # ValueError: too few blocks are free"
            self.log.refuse(GOES_ON, line, function, *arguments, returned=None, other_error=None)
            self._compare(facts)


def _running(group: SequenceGroup) -> int:
    return group.num_seqs(SequenceStatus.RUNNING)


def _with_tables(account: Account, group: SequenceGroup) -> int:
    """Sequences whose blocks lie on the GPU, whether they run or not."""
    tables = [account.tables[seq.seq_id] for seq in group.seqs if seq.seq_id in account.tables]
    return sum(table[0].device is GPU for table in tables)


def _needing(account: Account, group: SequenceGroup) -> int:
    """Sequences whose next token could not be written in place."""
    tables = [(seq, account.tables[seq.seq_id]) for seq in group.get_seqs(SequenceStatus.RUNNING)]
    return sum(
        seq.get_len() >= len(table) * account.block_size or account.owners(table[-1]) > 1 for seq, table in tables
    )


def _with_full_blocks(account: Account, group: SequenceGroup) -> int:
    return sum(seq.get_len() % account.block_size == 0 for seq in group.get_seqs(SequenceStatus.RUNNING))


class _CanAppendWorld(_ChapterWorld):
    """The question, put again and again, with theories beside it."""

    verb, own = "can_append_slots", ("can_append_slots",)
    verbs = ("allocate", "can_append_slots", "append_slots", "fork", "free", "finish", "swap_out", "swap_in")
    keeps_status = DECISION_KEEPS
    theories = (
        ("not-only-running", lambda account, group: len(group.seqs) <= account.free(GPU)),
        ("not-only-running", lambda account, group: group.num_unfinished_seqs() <= account.free(GPU)),
        ("not-only-running", lambda account, group: _with_tables(account, group) <= account.free(GPU)),
        ("only-those-in-need", lambda account, group: _needing(account, group) <= account.free(GPU)),
        ("only-those-in-need", lambda account, group: _with_full_blocks(account, group) <= account.free(GPU)),
        ("no-at-the-limit", lambda account, group: _running(group) < account.free(GPU)),
        (
            "watermark-kept",
            lambda account, group: _running(group) + account.watermark_blocks <= account.free(GPU),
        ),
    )

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.suspects = Theories(self.theories)

    def _decide(self, line: str, asked: SequenceGroup, expected: Any, **facts: Any) -> None:
        self.suspects.ask(self.account, asked)
        super()._decide(line, asked, expected, **facts)
        self.suspects.hear(expected)

    def fault(self, symptom: str, facts: Facts) -> str | None:
        if symptom != "answer":
            return "asks-by-doing" if self.is_own else None
        if not any(equal(facts["got"], answer) for answer in (True, False)):
            return "not-a-bool"
        group = self.groups[self.operation[1]]
        facts["others"] = len(group.seqs) - facts["num_running"]
        facts["needing"] = _needing(self.account, group)
        self.suspects.hear(facts["got"])
        if self.replaying:
            return None
        if equal(facts["got"], True) and facts["needing"] > facts["free"]:
            return "yes-without-room"
        for example in CAN_APPEND_EXAMPLES:
            self.suspects.left &= self.replayed(example)[0].suspects.left
        return self.suspects.name


class _AppendWorld(_ChapterWorld):
    verb, own = "append_slots", ("append_slots",)
    verbs = ("allocate", "append_slots", "fork", "free")

    def fault(self, symptom: str, facts: Facts) -> str | None:
        if not self.is_own:
            by_content = self.account.caching and self.operation[0] == "allocate"
            return "key-not-kept-true" if by_content and symptom in ("mixed-up", "not-shared", "free") else None
        missing, alone = facts["required"] - facts["blocks"], facts["owners"] == 1
        if symptom == "length" and facts["whose"] == facts["seq"]:
            return self._length_fault(facts["got"] - facts["expected"], missing, facts)
        if symptom == "pairs":
            return _pairs_fault(missing, facts)
        if missing:
            return None
        if alone:
            filled = self.account.caching and facts["length"] % self.block_size == 0
            if symptom in ("not-shared", "free") and filled:
                return "key-not-kept-true"
            return "copied-although-alone" if symptom == "moved" else None
        return {"mixed-up": "written-in-place-while-shared", "moved": "more-than-the-last-block"}.get(symptom)

    def _length_fault(self, difference: int, missing: int, facts: Facts) -> str | None:
        """The misconception behind a table that is too long or too short by so many blocks."""
        if missing == 1 and difference < 0:
            return self._too_short_fault(facts)
        if missing == 1:
            return "two-blocks-for-one-token" if difference == 1 else None
        if missing or difference != 1 or facts["owners"] > 1:
            return None
        return "block-for-every-token" if facts["length"] % self.block_size else "block-before-its-token"

    def _too_short_fault(self, facts: Facts) -> str:
        """The misconception behind a block that was not opened."""
        last = self.manager.get_block_table(self.seq)[-1:]
        if facts["owners"] > 1 and not equal(list(last), [facts["last"]]):
            return "copied-and-not-opened"
        if self.block_size == 1:
            return "remainder-of-one"
        taken = equal(self.manager.get_num_free_gpu_blocks(), self.account.free(GPU))
        return "block-not-in-the-table" if taken else "newest-token-left-out"

    def refused(self, facts: Facts) -> tuple[str | None, str | None]:
        if facts["missing"] > 1 and self.worked:
            return "missed-calls-accepted", "missed-calls-other-error"
        return None, None


def _pairs_fault(missing: int, facts: Facts) -> str | None:
    """The misconception behind a wrong list of pairs, where the tables are right."""
    got, expected = facts["got"], facts["expected"]
    if got is None:
        return "list-not-returned"
    if expected and equal(got, list(expected[0])):
        return "pair-not-in-a-list"
    if expected and equal(got, []):
        return "pair-not-passed-on"
    return "copied-for-a-new-block" if missing == 1 and got else None


class _ForkWorld(_ChapterWorld):
    verb, own = "fork", ("fork",)
    verbs = ("allocate", "append_slots", "fork", "free")

    def possible(self, operation: Operation) -> bool:
        """As `ManagerWorld`; whether a parent without a table is forked onto a child that has one is left open."""
        if not super().possible(operation):
            return False
        verb, key, *arguments = operation
        is_onto = verb == "fork" and len(arguments) == 2
        return not is_onto or self.groups[key].seqs[arguments[0]].seq_id in self.account.tables

    def is_work(self, operation: Operation) -> bool:
        _, key, i, *onto = operation
        return not onto and self.groups[key].seqs[i].seq_id in self.account.tables

    def fault(self, symptom: str, facts: Facts) -> str | None:
        if self._share_a_list():
            return "same-list"
        if self._blocks_are_copies():
            return "blocks-copied"
        if not self.is_own or len(self.operation) > 3:  # a fork that must be refused
            return None
        if symptom == "owners":
            return self._owners_fault(facts)
        if facts["whose"] != facts["child"]:
            return None
        if symptom == "length":
            return "last-block-left-out" if facts["got"] == facts["expected"] - 1 else None
        return {"left-table": "empty-table-for-the-child", "not-shared": "blocks-for-the-child"}.get(symptom)

    def _owners_fault(self, facts: Facts) -> str | None:
        if facts["got"] > facts["expected"]:
            before = facts["expected"] - 1
            return "owner-counted-twice" if facts["got"] in (before + 2, before * 2) else None
        child = self.groups[self.operation[1]].seqs[-1]
        table, wanted = self.manager.block_tables[child.seq_id], self.account.tables[child.seq_id]
        last_is_right = equal(table[-1].ref_count, self.account.owners(wanted[-1]))
        return "only-the-last-block-counted" if last_is_right else "owner-not-counted"

    def _share_a_list(self) -> bool:
        """Whether two of the learner's tables are one list."""
        held = self.manager.block_tables
        tables = [held[seq_id] for seq_id in self.account.tables if seq_id in held]
        return len(set(map(id, tables))) < len(tables)

    def _blocks_are_copies(self) -> bool:
        """Whether two objects of refimpl's stand for one block; a design may have handles of its own."""
        tables = [self.manager.block_tables.get(seq_id, ()) for seq_id in self.account.tables]
        blocks = {id(block): block for table in tables for block in table if isinstance(block, PhysicalTokenBlock)}
        return len({(block.device, block.block_number) for block in blocks.values()}) < len(blocks)

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        if self.is_own and self.worked and self.seq.seq_id not in self.account.tables:
            return Exception, "nothing-to-share-is-no-error"
        return None

    def refused(self, facts: Facts) -> tuple[str | None, str | None]:
        return ("table-replaced", "table-replaced-other-error") if self.worked else (None, None)


class _CopyWorld(_ChapterWorld):
    verb, own = "append_slots", ("_copy_on_write",)
    verbs = ("allocate", "append_slots", "fork", "free")

    def is_work(self, operation: Operation) -> bool:
        _, key, i, _, count = operation
        seq = self.groups[key].seqs[i]
        table = self.account.tables[seq.seq_id]
        length = seq.get_len() + (0 if seq.seq_id in self.asking_again else count)
        return self.account.required(length) == len(table) and self.account.owners(table[-1]) > 1

    def fault(self, symptom: str, facts: Facts) -> str | None:
        if not self.is_own:
            by_content = self.account.caching and self.operation[0] == "allocate"
            return "content-not-known" if by_content and symptom in ("not-shared", "free") else None
        if facts["owners"] == 1 or facts["required"] > facts["blocks"]:
            return None
        if "missing" in facts:  # refused, as no block is free
            return "let-go-before-taking"
        if symptom == "owners":
            return _copy_owners_fault(facts)
        if symptom == "pairs":
            found = self.account.owners(self.account.tables[self.seq.seq_id][-1]) > 1  # what has to be copied is open
            return None if found else _pair_fault(facts["got"], facts["expected"])
        if symptom == "length":
            return "appended-and-not-replaced" if facts["got"] > facts["expected"] else None
        if symptom == "mixed-up":
            last = self.manager.block_tables[self.seq.seq_id][-1]
            if last.device is not GPU:
                return None
            return "not-put-into-the-table" if equal(last.block_number, facts["last"]) else "put-into-every-table"
        return {"moved": "not-the-last-block", "not-shared": "content-not-known"}.get(symptom)


def _copy_owners_fault(facts: Facts) -> str | None:
    """The misconception behind a wrong owner count after a copy."""
    got, expected = facts["got"], facts["expected"]
    if not equal(facts["number"], facts["last"]):
        if equal(got, 0):
            return "new-block-let-go"
        if equal(got, 1):
            return "new-block-set-to-one"
        return "new-block-counted-twice" if equal(got, 2) and expected == 1 else None
    if equal(got, expected + 1):
        return "old-block-kept"
    if facts["owners"] == 2:
        return "let-go-twice" if equal(got, 0) else None
    return "others-forgotten" if any(equal(got, count) for count in (0, 1)) else None


def _pair_fault(got: Any, expected: list[tuple[int, int]]) -> str | None:
    """The misconception behind a wrong pair, where the tables are right."""
    if equal(got, [(target, source) for source, target in expected]):
        return "pair-turned-round"
    if equal(got, [None]):
        return "pair-not-returned"
    if equal(got, [tuple(expected)]):
        return "pair-in-a-list-already"
    try:
        numbers = [tuple(block.block_number for block in pair) for pair in got]
    except (AttributeError, TypeError):
        return None
    return "blocks-and-not-numbers" if equal(numbers, expected) else None


class _FreeWorld(_ChapterWorld):
    """Sequences end; `reset` ends all of them where `_free_block_table` is the learner's, since it goes by it."""

    verb, own = "free", ("free", "_free_block_table")
    verbs = ("allocate", "append_slots", "fork", "free", "swap_out", "swap_in", "reset")

    def _all_choices(self) -> Iterator[Operation]:
        yield from super()._all_choices()
        yield ("reset",)

    def possible(self, operation: Operation) -> bool:
        """As `ManagerWorld`, and `reset`."""
        if operation[0] != "reset":
            return super().possible(operation)
        part = getattr(self.subject, "_free_block_table", None)
        return part not in (None, ANSWERS["_free_block_table"]) and hasattr(self.manager, "reset")

    def _reset(self) -> None:
        for group in self.groups.values():
            super()._set_status(group.seqs, SequenceStatus.FINISHED_STOPPED)
            for seq in group.seqs:
                self.account.let_go(seq.seq_id)
        self._call("manager.reset()", self.manager.reset, facts={})
        self._compare({})

    def is_work(self, operation: Operation) -> bool:
        _, key, i = operation
        return self.groups[key].seqs[i].seq_id in self.account.tables

    def perform(self, operation: Operation) -> None:
        """As before; what the sequence held is kept in mind."""
        self.held: list[Block] = []
        if operation[0] == "free":
            _, key, i = operation
            self.held = self.account.tables.get(self.groups[key].seqs[i].seq_id, [])
        super().perform(operation)

    def _set_status(self, seqs: Iterable[Sequence], status: SequenceStatus) -> None:
        """As `ManagerWorld`; every other sequence that is freed has not finished: it was preempted, and waits."""
        preempted = self.is_own and self.held and self.seq.seq_id % 2
        super()._set_status(seqs, SequenceStatus.WAITING if preempted else status)

    def _call(self, line: str, function: Any, *arguments: Any, facts: Facts) -> Any:
        preempted = self.is_own and self.seq.status is SequenceStatus.WAITING
        return super()._call(line + "    # preempted" * preempted, function, *arguments, facts=facts)

    def fault(self, symptom: str, facts: Facts) -> str | None:
        if not self.is_own:
            return None
        if symptom == "left-table" and facts["whose"] == facts["seq"]:
            return "table-left-behind" if self.seq.is_finished() else "only-the-finished"
        if symptom == "owners":
            return self._owners_fault(facts)
        return self._free_count_fault(facts) if symptom == "free" else None

    def _owners_fault(self, facts: Facts) -> str | None:
        """The misconception behind a wrong owner count of a block that others hold as well."""
        if facts["got"] < facts["expected"]:
            return "let-go-for-everybody"
        shared = [block for block in self.held if self.account.owners(block)]
        kept = sum(not equal(self._ref_count(block), self.account.owners(block)) for block in shared)
        if kept < len(shared):
            return "only-part-let-go"
        if len(shared) == len(self.held):  # whether others would have come back cannot be seen
            return None
        return "shared-blocks-kept" if self._num_back(facts["on"]) else "blocks-not-let-go"

    def _free_count_fault(self, facts: Facts) -> str | None:
        """The misconception behind a wrong number of free blocks, where the owner counts are right."""
        device, got, expected = facts["device"], facts["got"], facts["expected"]
        facts["other"] = other = "CPU" if facts["on"] == "GPU" else "GPU"
        if self._num_back(other) > 0:
            return "wrong-device"
        if device == other or got > expected:
            return None
        return "only-part-let-go" if self._num_back(device) else "blocks-not-let-go"

    def _num_back(self, device: str) -> int:
        """Blocks that came back by the learner's count."""
        count = getattr(self.manager, f"get_num_free_{device.lower()}_blocks")
        return int(count()) - self.free_before[Device[device]]

    def _ref_count(self, block: Block) -> Any:
        """The learner's count of a block that is in a table."""
        seq_id, table = next(item for item in self.account.tables.items() if block in item[1])
        return self.manager.block_tables[seq_id][table.index(block)].ref_count

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        return (Exception, "stranger-refused") if self.is_own and self.worked and not facts["has_table"] else None


def _history(setup: Setup, *operations: str) -> History:
    """Operations as words: `append a 0` is one token for the first sequence of request a, the next of its text."""
    return History.of(setup, *(_operation(operation.split()) for operation in operations))


def _operation(words: list[str]) -> Operation:
    if words == ["reset"]:
        return ("reset",)
    verb, key, *numbers = words
    arguments = tuple(map(int, numbers))
    if verb == "allocate":  # num_tokens, then num_seqs
        return verb, key, *arguments, *(1,) * (2 - len(arguments)), 0
    if verb == "back":  # which sequence
        return "allocate", key, *arguments
    if verb == "append":  # which sequence, then another token than the text's, then how many
        return "append_slots", key, *arguments, *(0, 1)[len(arguments) - 1 :]
    return verb, key, *arguments


CAN_APPEND_EXAMPLES = (
    _history(sizes(4, 3), "allocate a 4 3", "can_append_slots a", "free a 0", "can_append_slots a"),
    _history(sizes(4, 3), "allocate a 6 2", "append a 0", "can_append_slots a"),
    _history(sizes(4, 2), "allocate a 3", "can_append_slots a"),
    _history(sizes(4, 3), "allocate a 4 3", "free a 0", "free a 1", "can_append_slots a"),
    _history(sizes(4, 4, percent=50), "allocate a 5", "can_append_slots a"),
    _history(sizes(4, 2), "allocate a 4 2", "finish a 0", "can_append_slots a"),
    _history(sizes(4, 1, 4), "allocate a 4 2", "swap_out a", "can_append_slots a"),
    _history(sizes(4, 2, 4), "allocate a 4 2", "swap_out a", "can_append_slots a"),
    _history(sizes(4, 3), "allocate a 4", "allocate b 4", "can_append_slots a"),
    _history(sizes(4, 2, 4), "allocate a 4", "swap_out a", "allocate b 4", "can_append_slots b"),
    _history(sizes(4, 3, caching=True), "allocate a 8", "free a 0", "allocate b 4", "can_append_slots b"),
)

STEPS = (
    Step(
        exercise_id="06-can-append-slots",
        title="ask before the step",
        points=1,
        subject="BlockSpaceManager",
        writes=("can_append_slots",),
        needs=("allocate", "append_slots", "fork", "free", "swap_out", "swap_in"),
        reference=(BlockSpaceManager.can_append_slots,),
        properties=(DECISION, DECISION_KEEPS, GOES_ON),
        misconceptions={
            "yes-without-room": "Each running sequence counts for one block, whether it needs one or not, and as many "
            "must be free: {num_running} running, {free} free, and yours said True.",
            "only-those-in-need": "`can_append_slots` counts running sequences, whether they need a block or not: "
            "{num_running} running and {free} free is a no, even though {needing} of them need one now.",
            "not-only-running": "Only a RUNNING sequence gets a token in the next step: of this group {num_running} "
            "run and {others} do not, and yours counted those as well.",
            "no-at-the-limit": "As many free blocks as running sequences are enough, because none takes more than "
            "one: {num_running} running, {free} free, and yours said False.",
            "watermark-kept": "The watermark is kept from newcomers so that running sequences can grow, so it is not "
            "kept from them: {num_running} running, {free} free, and yours held {reserved} back.",
            "not-a-bool": "Those who are in can go on now or they cannot, so `can_append_slots` returns True or False: "
            "yours returned {got}.",
            "asks-by-doing": "A question changes nothing: yours took blocks to find out whether there are any.",
        },
        world=_CanAppendWorld,
        examples=CAN_APPEND_EXAMPLES,
        setups=random_sizes,
    ),
    Step(
        exercise_id="06-append-slots",
        title="room for the newest token",
        points=3,
        subject="BlockSpaceManager",
        writes=("append_slots",),
        needs=("allocate", "fork", "free"),
        reference=(BlockSpaceManager.append_slots,),
        properties=(*STATE, REFUSES, REFUSAL_KEEPS, PAIRS, GOES_ON),
        misconceptions={
            "newest-token-left-out": "The length already includes the newest token: {seq} has {length} tokens, which "
            "fill {required} blocks, and its table still has {blocks}.",
            "block-before-its-token": "A token that fills a block opens none: token {length} of {seq} is the last one "
            "of its block, and the next block is opened by the token that needs it.",
            "block-for-every-token": "A block has room for {block_size} tokens: token {length} of {seq} fits into the "
            "last one, and yours took another.",
            "two-blocks-for-one-token": "One token needs one slot, so one block at most is opened for it: yours gave "
            "{seq} two.",
            "remainder-of-one": "In blocks of 1 token every token opens one, and no length leaves a remainder of 1 "
            "there: compare the blocks that {seq} needs ({required}) with those that it has ({blocks}).",
            "block-not-in-the-table": "A block that is taken has to go into the table, or nobody will ever use it or "
            "give it back: yours took one, and the table of {seq} still has {blocks}.",
            "token-appended-again": "The newest token is in the sequence already: `append_slots` makes room for it and "
            "leaves {seq} as it is, and yours made it {now} tokens long.",
            "missed-calls-accepted": "One call makes room for one token: {seq} needs {required} blocks and has "
            "{blocks}, so calls were missed, and tokens without keys and values would go unnoticed: raise ValueError.",
            "missed-calls-other-error": "The error for missed calls is ValueError, raised on purpose, since that is "
            "what a caller waits for: yours ended in {error}.",
            "list-not-returned": "The caller goes through what `append_slots` returns, so it is a list every time, "
            "empty when nothing has to be copied: yours returned None.",
            "pair-not-in-a-list": "`append_slots` returns a list of pairs, though there is one at most: yours returned "
            "the pair itself, {pairs}.",
            "pair-not-passed-on": "A copy that nobody is told of is never made: {seq} has a block of its own now, and "
            "yours returned [], so it would read whatever was left in there.",
            "copied-for-a-new-block": "A token that opens a block copies nothing, because nothing in the new block is "
            "older than the token: yours returned {pairs}.",
            "copied-and-not-opened": "A token that opens a block leaves the block before it alone: block {last} is "
            "full, nobody writes into it again, and it may stay shared.",
            "copied-although-alone": "Only a block that somebody else holds must not be written to: {seq} is alone on "
            "block {last}, so its token goes in place.",
            "written-in-place-while-shared": "A block that others hold must not be written to: block {last} is in "
            "{owners} tables, so {seq} needs a copy of its own for its token.",
            "more-than-the-last-block": "A token is written into the last block, so that is the only one that may have "
            "to be copied: the blocks before it stay shared.",
            "key-not-kept-true": "With prefix caching a block is found by what it holds: take a new one with "
            "`_allocate_last_block`, call `_rekey_last_block` for a token in place, or others get the wrong block or "
            "miss the right one.",
        },
        world=_AppendWorld,
        examples=(
            _history(sizes(4, 4), "allocate a 5", "append a 0", "append a 0", "append a 0", "append a 0"),
            _history(sizes(4, 5), "allocate a 6 2", "append a 0", "append a 1"),
            _history(sizes(4, 4), "allocate a 4 2", "append a 0", "append a 1"),
            _history(sizes(2, 4), "allocate a 1", "append a 0", "append a 0 0 3"),
            _history(sizes(1, 4), "allocate a 3", "append a 0"),
            _history(sizes(4, 4, caching=True), "allocate a 3", "append a 0", "allocate b 4"),
            _history(sizes(4, 4, caching=True), "allocate a 2", "append a 0 1", "allocate b 2"),
            _history(sizes(1, 4, caching=True), "allocate a 1", "append a 0", "allocate b 2"),
            _history(sizes(4, 8), "allocate a 3 4", "append a 0", "append a 1", "append a 2", "append a 3"),
        ),
        setups=random_sizes,
    ),
    Step(
        exercise_id="06-fork",
        title="a child with the same past",
        points=1,
        subject="BlockSpaceManager",
        writes=("fork",),
        needs=("allocate", "append_slots", "free"),
        reference=(BlockSpaceManager.fork,),
        properties=(*STATE, REFUSES, REFUSAL_KEEPS, GOES_ON),
        misconceptions={
            "same-list": "Parent and child hold the same blocks in two lists: yours gave the child its parent's own "
            "list, so what one of them appends stands in both tables.",
            "owner-not-counted": "Every table that holds a block counts: block {number} is in {tables} since "
            "the fork, and its `ref_count` is {got}.",
            "only-the-last-block-counted": "The child holds all of its parent's blocks, the full ones too: block "
            "{number} is in {tables} since the fork, and its `ref_count` is {got}.",
            "owner-counted-twice": "One child is one owner more: block {number} is in {tables} since the "
            "fork, and its `ref_count` is {got}.",
            "last-block-left-out": "The child shares the partly filled block as well, until one of the two writes into "
            "it: yours left it out, and the child lacks the tokens in it.",
            "empty-table-for-the-child": "A parent without a block table has nothing to share, so the child has no "
            "table either: yours gave it an empty one, as if it had been let in.",
            "blocks-for-the-child": "A fork allocates nothing: the child holds its parent's own blocks, and whoever "
            "writes first makes the copy then.",
            "blocks-copied": "Sharing copies the list and not the blocks: an owner counted on a copy of a block is one "
            "that nobody else sees.",
            "nothing-to-share-is-no-error": "A parent without a block table is no mistake, since it may have been "
            "freed a moment before: nothing happens, and yours ended in {error}.",
            "table-replaced": "{child} has a table already, and a fork neither drops the blocks in it nor keeps quiet "
            "about them: raise ValueError and change nothing.",
            "status-changed": "A status is the scheduler's to write: a child comes with its own, and your `fork` has "
            "set {seq} to {status}.",
            "table-replaced-other-error": "The error for a child that has a table already is ValueError, since that is "
            "what a caller waits for: yours ended in {error}.",
        },
        world=_ForkWorld,
        examples=(
            _history(sizes(4, 4), "allocate a 6", "fork a 0", "append a 0", "append a 0", "append a 0"),
            _history(sizes(4, 4), "allocate a 4", "fork a 0", "append a 0", "append a 1"),
            _history(sizes(4, 4), "allocate a 3", "fork a 0", "fork a 0 1"),
            _history(sizes(4, 4), "allocate a 3", "fork a 0", "free a 0", "fork a 0"),
            _history(sizes(4, 8), "allocate a 6", "fork a 0", "fork a 1", "fork a 0"),
        ),
        setups=random_sizes,
    ),
    Step(
        exercise_id="06-copy-on-write",
        title="a block of one's own",
        points=3,
        subject="BlockSpaceManager",
        writes=("_copy_on_write",),
        through=("append_slots",),
        needs=("allocate", "fork", "free"),
        reference=(BlockSpaceManager._copy_on_write,),
        properties=(*STATE, REFUSES, REFUSAL_KEEPS, PAIRS, GOES_ON),
        misconceptions={
            "pair-turned-round": "The pair says where from and then where to: the shared block is the source and the "
            "new one the destination, {expected_pairs} and not {pairs}.",
            "pair-not-returned": "Nobody copies what nobody is told of: return the pair of block numbers, or {seq} "
            "reads whatever was left in its new block.",
            "pair-in-a-list-already": "`append_slots` puts the pair into a list, so `_copy_on_write` returns the pair "
            "alone: yours became a list in a list.",
            "blocks-and-not-numbers": "The pair goes to the GPU, which knows blocks by their numbers: return two "
            "`block_number`s and not the blocks.",
            "not-put-into-the-table": "The new block takes the shared one's place in the table of {seq}: yours left "
            "block {last} there, and the token would be written into a text that others read.",
            "appended-and-not-replaced": "The new block takes the place of the shared one, and is not put behind it: "
            "the tokens of {seq} fill {required} blocks, and its table has one more now.",
            "put-into-every-table": "Only the sequence that writes moves to the new block: {whose} held block {last} "
            "and keeps it, or the two would still share.",
            "not-the-last-block": "The token goes into the last block of the table, so that is the one to be "
            "replaced: every block before it stays where it is.",
            "old-block-kept": "A sequence that leaves a block lets go of it: block {number} is in {tables} "
            "now, and its `ref_count` is still {got}.",
            "new-block-let-go": "It is the old block that {seq} lets go of, so keep it in a variable before the new "
            "one takes its place: block {number} is new, and its `ref_count` is {got}.",
            "let-go-twice": "Leaving a block is one owner letting go: block {number} is still in the table of {whose}, "
            "and its `ref_count` is {got}.",
            "others-forgotten": "Leaving a block lowers its count by one and does not settle it: block {number} is "
            "still in {tables}, and its `ref_count` is {got}.",
            "new-block-counted-twice": "A block comes from the allocator with its owner counted: the new block "
            "{number} is in one table, and its `ref_count` is {got}.",
            "new-block-set-to-one": "With prefix caching the block that you are given may have owners already: block "
            "{number} is in {tables} now, so leave its count as `_allocate_last_block` has it, and do not set it to 1.",
            "let-go-before-taking": "Do first what can fail: no block was free, `append_slots` raised as it must, and "
            "your table or an owner count had changed by then.",
            "content-not-known": "With prefix caching a token that fills the new block completes a content that others "
            "may know or look for: take it with `_allocate_last_block`, which asks by content.",
        },
        world=_CopyWorld,
        examples=(
            _history(sizes(4, 4), "allocate a 6 2", "append a 0", "append a 1"),
            _history(sizes(4, 8), "allocate a 3 4", "append a 0", "append a 1", "append a 2", "append a 3"),
            _history(sizes(4, 2), "allocate a 6 2", "append a 0"),
            _history(sizes(4, 4, caching=True), "allocate a 3 2", "append a 0", "allocate b 4"),
            _history(sizes(4, 4, caching=True), "allocate a 3 2", "append a 0", "append a 1"),
            _history(sizes(4, 4, caching=True), "allocate a 3 3", "append a 0", "append a 1"),
        ),
        setups=random_sizes,
    ),
    Step(
        exercise_id="06-free",
        title="let go of everything",
        points=2,
        subject="BlockSpaceManager",
        writes=("free", "_free_block_table"),
        through=("free",),
        needs=("allocate", "append_slots", "fork", "swap_out", "swap_in"),
        reference=(BlockSpaceManager.free, BlockSpaceManager._free_block_table),
        properties=(*STATE, GOES_ON),
        misconceptions={
            "table-left-behind": "A sequence that is freed holds nothing, so its table goes: left behind, the table "
            "of {seq} would be freed a second time, and take blocks from whoever has them then.",
            "only-the-finished": "`free` takes the blocks of any sequence that it is given: {seq} was preempted, has "
            "not finished, and still holds what others are waiting for.",
            "shared-blocks-kept": "Every block of the table loses an owner, the shared ones too: block {number} is in "
            "{tables} now, and its `ref_count` is still {got}.",
            "let-go-for-everybody": "`free` speaks for one sequence: block {number} is still in the table of {whose}, "
            "so its `ref_count` must be {expected} now, and it is {got}.",
            "blocks-not-let-go": "To drop the table is half of it: every block in it must be let go of, or what {seq} "
            "held on the {on} is lost to everybody.",
            "only-part-let-go": "All blocks of the table are let go of, the first and the last as well: part of what "
            "{seq} held still counts it as an owner.",
            "wrong-device": "A block goes back to the allocator of the device that it lies on: {seq} held blocks of "
            "the {on}, and they came back as free {other} blocks.",
            "status-changed": "A status is the scheduler's to write, and whoever was preempted is to wait and come "
            "back: your `free` has set {seq} to {status}.",
            "stranger-refused": "A sequence without a block table holds nothing, and to let go of nothing is no "
            "mistake, since an abort may come at any moment: yours ended in {error}.",
        },
        world=_FreeWorld,
        examples=(
            _history(sizes(4, 4), "allocate a 6 2", "free a 0", "free a 1", "free a 1"),
            _history(sizes(4, 4), "allocate a 6 2", "append a 0", "free a 0", "free a 1"),
            _history(sizes(4, 4, 4), "allocate a 6", "swap_out a", "free a 0"),
            _history(sizes(4, 4), "allocate a 3 2", "free a 0", "fork a 0", "free a 2"),
            _history(sizes(4, 4), "allocate a 6", "free a 0", "back a 0", "free a 0"),
            _history(sizes(4, 4, 4), "allocate a 6", "swap_out a", "allocate b 6 2", "reset"),
        ),
        setups=random_sizes,
    ),
)
