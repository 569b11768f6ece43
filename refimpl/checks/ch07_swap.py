"""Chapter 07: out to the CPU and back with the sharing intact, and the two questions that come first.

For a question there is a list of theories of how a wrong answer comes about. Each answer, in the history at hand and in
the step's examples, drops those that it contradicts; a thought is named when it alone explains all of them. For a swap
the symptom tells.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from refimpl.block import Device
from refimpl.block_manager import AllocStatus, BlockSpaceManager
from refimpl.checks.manager_account import Account, Block, Pair
from refimpl.checks.manager_comparison import KEPT, PAIRS, STATE, Comparison, Facts
from refimpl.checks.manager_world import (
    CPU,
    DECISION,
    DECISION_KEEPS,
    GPU,
    REFUSAL_KEEPS,
    REFUSES,
    ManagerWorld,
    random_sizes,
    sizes,
)
from refimpl.checks.step import History, Log, Operation, Setup, Step, counted, equal, show
from refimpl.checks.thoughts import Theories
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

OTHERS = -1  # stands in the account for other requests' sequences on the CPU

Theory = Callable[[Account, SequenceGroup], Any]  # what a learner who thinks so answers


class _SwapWorld(ManagerWorld):
    """Requests that are swapped, sequences that end in between, and CPU blocks that others have.

    Beside `ManagerWorld`'s operations: ("finish", key, i), a sequence ends and has not been freed yet; ("take_cpu",),
    a block of the CPU pool goes to somebody else.
    """

    often: tuple[str, ...] = ()  # the operations that a random history has more of
    keeps_status = KEPT  # the property that a changed status breaks

    refusing = False  # whether the call is one that must be refused

    def choices(self) -> Iterable[Operation]:
        """Those of `ManagerWorld` and this chapter's own, each looked at once; what the step asks for comes often."""
        often = [operation for operation in self._all_choices() if operation[0] in self.verbs]
        often += [operation for operation in often if operation[0] in self.often] * 3
        possible = {operation: self.possible(operation) for operation in dict.fromkeys(often)}
        return [operation for operation in often if possible[operation]]

    def _all_choices(self) -> Iterator[Operation]:
        yield from super()._all_choices()
        yield from (("finish", key, i) for key, group in self.groups.items() for i in range(len(group.seqs)))
        yield ("take_cpu",)

    def possible(self, operation: Operation) -> bool:
        """As a scheduler would: what it asks for has room on the GPU, and leaves from where it is."""
        verb, *arguments = operation
        if verb == "take_cpu":
            return hasattr(self.manager, "cpu_allocator") and self.account.free(CPU) > 0
        if verb == "finish":
            return arguments[0] in self.groups and self._can_finish(self.groups[arguments[0]], arguments[1])
        if not super().possible(operation):
            return False
        if verb == "allocate":
            return len(arguments) > 1 and self.account.required(arguments[1]) <= self.account.free(GPU)
        group = self.groups[arguments[0]]
        if verb in ("can_swap_out", "can_swap_in"):
            return bool(group.get_seqs(self._moves(verb.removeprefix("can_"))[1]))
        if verb == "append_slots":
            return arguments[3] == 1 and self.account.free(GPU) > 0 and not group.seqs[arguments[1]].is_finished()
        if verb == "fork":
            return len(arguments) == 2 and not group.seqs[arguments[1]].is_finished()
        return True

    def _can_finish(self, group: SequenceGroup, i: int) -> bool:
        """At least one sequence of the group goes on."""
        return i < len(group.seqs) and len(group.get_unfinished_seqs()) > 1 and not group.seqs[i].is_finished()

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        """Nothing to tell; the call is one that should return."""
        self.refusing = False
        return None

    def refused(self, facts: Facts) -> tuple[str | None, str | None]:
        """An answer where there is no room; the call is one that should raise."""
        self.refusing = True
        return "full-pool-answers", None

    def _finish(self, key: Any, i: int) -> None:
        self.groups[key].seqs[i].status = SequenceStatus.FINISHED_STOPPED
        self.log.note(f"{self._seq_name(key, i)}.status = SequenceStatus.FINISHED_STOPPED    # not freed yet")

    def _take_cpu(self) -> None:
        self.manager.cpu_allocator.allocate()
        self.account.tables.setdefault(OTHERS, []).append(Block(CPU, None))
        self.log.note("manager.cpu_allocator.allocate()    # for somebody else")

    def _set_status(self, seqs: Iterable[Sequence], status: SequenceStatus) -> None:
        """After a swap, first see that the statuses are as they were."""
        verb, seqs = self.operation[0], list(seqs)
        if verb in ("swap_out", "swap_in"):
            key, before = self.operation[1], self._moves(verb)[1]
            for seq in seqs:
                name = self._seq_name(key, self.groups[key].seqs.index(seq))
                fault = None if seq.status is before else "status-changed"
                evidence = {"seq": name, "status": show(seq.status)}
                self.log.expect(self.keeps_status, f"{name}.status", seq.status, before, fault, **evidence)
        super()._set_status(seqs, status)


class _StateOnly(Comparison):
    """For steps that are about answers: nobody looks at what is to be copied."""

    def pairs(self, got: Any, pairs: list[Pair], facts: Facts) -> None:
        """Not compared."""


class _QuestionWorld(_SwapWorld):
    """One of the two questions, put again and again, with theories beside it."""

    question = ""
    keeps_status = DECISION_KEEPS
    theories: tuple[tuple[str, Theory], ...] = ()  # a misconception and what it answers
    examples: tuple[History, ...] = ()  # of the step

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.comparison = _StateOnly(log, self.manager, self.account, self.fault)
        self.suspects = Theories(self.theories)

    def possible(self, operation: Operation) -> bool:
        """As `_SwapWorld`; a request is swapped out only where there is room, since refusals are not asked about."""
        if not super().possible(operation):
            return False
        if operation[0] != "swap_out":
            return True
        return len(self.account.distinct(_seq_ids(self.groups[operation[1]]))) <= self.account.free(CPU)

    def _compare(self, facts: Facts, keeps: str = "") -> None:
        super()._compare(facts, keeps or DECISION_KEEPS)

    def _decide(self, line: str, asked: SequenceGroup, expected: Any, **facts: Any) -> None:
        self.suspects.ask(self.account, asked)
        facts |= {
            "entries": _entries(self.account, asked),
            "blocks": counted(_distinct(self.account, asked), "block"),
            "free_cpu": self.account.free(CPU),
            "total_cpu": self.account.total[CPU],
        }
        super()._decide(line, asked, expected, **facts)
        self.suspects.hear(expected)

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        """A KeyError tells of a finished sequence, where there is one that has no table any more."""
        super().raised(facts)
        if self.operation[0] != self.question:
            return None
        seqs = self.groups[self.operation[1]].seqs
        gone = any(seq.is_finished() and seq.seq_id not in self.account.tables for seq in seqs)
        return (KeyError, "finished-counted") if gone else None

    def fault(self, symptom: str, facts: Facts) -> str | None:
        """The one thought that explains this answer, those before it, and those in the examples."""
        if self.operation[0] != self.question or symptom != "answer":
            return "asks-by-doing" if self.operation[0] == self.question else None
        self.suspects.hear(facts["got"])
        if self.replaying:
            return None
        for example in self.examples:
            self.suspects.left &= self.replayed(example)[0].suspects.left
        return self.suspects.name


def _seq_ids(group: SequenceGroup, *, unfinished: bool = True) -> list[int]:
    return [seq.seq_id for seq in (group.get_unfinished_seqs() if unfinished else group.seqs)]


def _distinct(account: Account, group: SequenceGroup) -> int:
    return len(account.distinct(_seq_ids(group)))


def _entries(account: Account, group: SequenceGroup) -> int:
    return sum(len(account.tables.get(seq_id, [])) for seq_id in _seq_ids(group))


def _of_one_table(account: Account, group: SequenceGroup) -> int:
    """Blocks that no other table holds."""
    return sum(account.owners(block) == 1 for block in account.distinct(_seq_ids(group)))


def _with_finished(account: Account, group: SequenceGroup) -> int:
    return len(account.distinct(_seq_ids(group, unfinished=False)))


def _of_first(account: Account, group: SequenceGroup) -> int:
    return len(account.distinct(_seq_ids(group)[:1]))


def _num_swapped(group: SequenceGroup) -> int:
    return group.num_seqs(SequenceStatus.SWAPPED)


# allocate: request, tokens, sequences, text; append_slots: request, sequence, token, count
CAN_SWAP_OUT_EXAMPLES = (
    History.read(sizes(4, 8, 2), "allocate a 8 2 0", "can_swap_out a", "allocate b 9 1 0", "can_swap_out b"),
    History.read(sizes(4, 8, 5), "allocate a 12 2 0", "can_swap_out a"),
    History.read(sizes(4, 8, 1), "allocate a 8 2 0", "can_swap_out a"),
    History.read(
        sizes(1, 6, 2),
        "allocate a 1 2 0",
        "append_slots a 0 0 1",
        "append_slots a 0 0 1",
        "finish a 0",
        "can_swap_out a",
    ),
    History.read(sizes(4, 4, 2), "allocate a 4 2 0", "free a 0", "can_swap_out a"),
    History.read(sizes(1, 3, 1), "allocate a 1 2 0", "append_slots a 1 0 1", "can_swap_out a"),
    History.read(sizes(4, 2, 4), "allocate a 8 1 0", "can_swap_out a"),
    History.read(sizes(4, 3, 2), "take_cpu", "allocate a 8 1 0", "can_swap_out a"),
    History.read(sizes(4, 8, 3), "allocate a 8 2 0", "can_swap_out a", "take_cpu", "can_swap_out a"),
    History.read(sizes(4, 8, 2), "allocate a 4 2 0", "can_swap_out a"),
    History.read(sizes(4, 8, 1, percent=25), "allocate a 4 1 0", "can_swap_out a"),
    History.read(sizes(4, 8, 4, percent=25), "allocate a 8 1 0", "can_swap_out a"),
    History.read(sizes(4, 8, 4, percent=25), "allocate a 12 1 0", "can_swap_out a"),
)
CAN_SWAP_IN_EXAMPLES = (
    History.read(
        sizes(4, 5, 8), "allocate a 8 2 0", "swap_out a", "can_swap_in a", "allocate b 5 1 0", "can_swap_in a"
    ),
    History.read(sizes(4, 1, 2), "allocate a 4 1 0", "swap_out a", "can_swap_in a"),
    History.read(sizes(4, 2, 2), "allocate a 4 2 0", "swap_out a", "can_swap_in a"),
    History.read(sizes(4, 5, 4), "allocate a 8 2 0", "swap_out a", "can_swap_in a"),
    History.read(sizes(4, 4, 2), "allocate a 8 2 0", "swap_out a", "can_swap_in a"),
    History.read(sizes(4, 8, 3), "allocate a 12 1 0", "swap_out a", "allocate b 24 1 0", "can_swap_in a"),
    History.read(
        sizes(1, 5, 5),
        "allocate a 1 2 0",
        "append_slots a 0 0 1",
        "append_slots a 0 0 1",
        "finish a 0",
        "swap_out a",
        "can_swap_in a",
    ),
    History.read(sizes(4, 4, 4), "allocate a 4 2 0", "free a 0", "swap_out a", "can_swap_in a"),
    History.read(sizes(4, 4, 4, percent=25), "allocate a 8 2 0", "swap_out a", "can_swap_in a"),
    History.read(sizes(4, 8, 4, percent=25), "allocate a 4 1 0", "swap_out a", "allocate b 20 1 0", "can_swap_in a"),
    History.read(sizes(4, 8, 1), "allocate a 4 1 0", "swap_out a", "can_swap_in a"),
    History.read(sizes(4, 1, 1), "allocate a 3 1 0", "swap_out a", "can_swap_in a"),
    History.read(sizes(4, 3, 3), "allocate a 4 1 0", "swap_out a", "allocate b 12 1 0", "can_swap_in a"),
)


class _CanSwapOutWorld(_QuestionWorld):
    """CPU blocks are taken by others, so that the free ones are not all."""

    question = "can_swap_out"
    verbs = ("allocate", "append_slots", "fork", "free", "finish", "take_cpu", "can_swap_out")
    theories = (
        ("entries-counted", lambda account, group: _entries(account, group) <= account.free(CPU)),
        ("finished-counted", lambda account, group: _with_finished(account, group) <= account.free(CPU)),
        ("first-sequence-only", lambda account, group: _of_first(account, group) <= account.free(CPU)),
        ("shared-left-out", lambda account, group: _of_one_table(account, group) <= account.free(CPU)),
        ("gpu-pool-asked", lambda account, group: _distinct(account, group) <= account.free(GPU)),
        ("all-cpu-blocks-counted", lambda account, group: _distinct(account, group) <= account.total[CPU]),
        ("one-must-stay-free", lambda account, group: _distinct(account, group) < account.free(CPU)),
        (
            "watermark-kept",
            lambda account, group: _distinct(account, group) <= account.free(CPU) - account.watermark_blocks,
        ),
        (
            "next-token-counted",
            lambda account, group: _distinct(account, group) + group.num_unfinished_seqs() <= account.free(CPU),
        ),
    )
    examples = CAN_SWAP_OUT_EXAMPLES

    def fault(self, symptom: str, facts: dict[str, Any]) -> str | None:
        if symptom == "answer" and isinstance(facts["got"], AllocStatus):
            return "status-instead-of-bool"
        return super().fault(symptom, facts)


def _asking(required: Callable[[Account, SequenceGroup], int]) -> Theory:
    """The right inequality for another number of blocks."""
    return lambda account, group: account.answer(required(account, group))


def _required(account: Account, group: SequenceGroup) -> int:
    return _distinct(account, group) + _num_swapped(group)


def _with_full_last_blocks(account: Account, group: SequenceGroup) -> int:
    full = sum(seq.get_len() % account.block_size == 0 for seq in group.get_seqs(SequenceStatus.SWAPPED))
    return _distinct(account, group) + full


def _nothing(watermark: int) -> int:
    return 0


def _the_watermark(watermark: int) -> int:
    return watermark


def _one_more(watermark: int) -> int:
    return watermark + 1


def _keeping(of_all: Callable[[int], int], of_free: Callable[[int], int]) -> Theory:
    """The right number of blocks, where so many are kept back of all blocks and of the free ones."""

    def theory(account: Account, group: SequenceGroup) -> AllocStatus:
        required, watermark = _required(account, group), account.watermark_blocks
        if account.total[GPU] - required < of_all(watermark):
            return AllocStatus.NEVER
        return AllocStatus.OK if account.free(GPU) - required >= of_free(watermark) else AllocStatus.LATER

    return theory


def _later_for_never(account: Account, group: SequenceGroup) -> AllocStatus:
    answer = account.answer(_required(account, group))
    return AllocStatus.LATER if answer is AllocStatus.NEVER else answer


def _of_the_cpu(account: Account, group: SequenceGroup) -> AllocStatus:
    if account.answer(_required(account, group)) is AllocStatus.NEVER:
        return AllocStatus.NEVER
    fits = account.free(CPU) - _required(account, group) >= account.watermark_blocks
    return AllocStatus.OK if fits else AllocStatus.LATER


class _CanSwapInWorld(_QuestionWorld):
    """Requests are swapped out, others take GPU blocks, and the question is put in between."""

    question = "can_swap_in"
    verbs = ("allocate", "append_slots", "fork", "free", "finish", "swap_out", "can_swap_in")
    often = ("swap_out", "can_swap_in")
    theories = (
        ("next-token-forgotten", _asking(_distinct)),
        ("last-block-looked-at", _asking(_with_full_last_blocks)),
        ("one-block-for-all", _asking(lambda account, group: _distinct(account, group) + 1)),
        ("entries-counted", _asking(lambda account, group: _entries(account, group) + _num_swapped(group))),
        ("finished-counted", _asking(lambda account, group: _with_finished(account, group) + _num_swapped(group))),
        ("finished-counted", _asking(lambda account, group: _with_finished(account, group) + len(group.seqs))),
        ("finished-counted", _asking(lambda account, group: _distinct(account, group) + len(group.seqs))),
        ("watermark-left-out-of-never", _keeping(_nothing, _the_watermark)),
        ("watermark-ignored", _keeping(_nothing, _nothing)),
        ("watermark-ignored", _keeping(_the_watermark, _nothing)),
        ("own-blocks-forgotten", _asking(lambda account, group: _num_swapped(group))),
        ("one-must-stay-free", _keeping(_one_more, _one_more)),
        ("one-must-stay-free", _keeping(_the_watermark, _one_more)),
        ("one-must-stay-free", _keeping(_one_more, _the_watermark)),
        ("later-instead-of-never", _later_for_never),
        ("cpu-pool-asked", _of_the_cpu),
    )
    examples = CAN_SWAP_IN_EXAMPLES

    def fault(self, symptom: str, facts: dict[str, Any]) -> str | None:
        if symptom == "answer" and isinstance(facts["got"], bool):
            return "bool-instead-of-status"
        return super().fault(symptom, facts)


class _MoveWorld(_SwapWorld):
    """Requests go out and, where `verbs` allow it, back and out again."""

    verbs: tuple[str, ...] = ("allocate", "append_slots", "fork", "free", "finish", "swap_out")
    often = ("swap_out", "swap_in")
    move = "swap_out"  # what this step asks for

    def perform(self, operation: Operation) -> None:
        """As `_SwapWorld`; what was compared before something differed is no merit of the answer."""
        before = dict(self.log.tally)
        try:
            super().perform(operation)
        except Exception:
            self.log.take_back(before)
            raise

    def possible(self, operation: Operation) -> bool:
        """As `_SwapWorld`; not where who asks first is told to stay away although a swap would fit."""
        if not super().possible(operation):
            return False
        if operation[0] not in ("swap_out", "swap_in"):
            return True
        group = self.groups[operation[1]]
        if operation[0] == "swap_out":
            asked = _distinct(self.account, group) <= self.account.free(CPU)
        else:
            asked = self.account.answer(_required(self.account, group)) is AllocStatus.OK
        return asked or not self._fits(operation[0], group)

    def _fits(self, verb: str, group: SequenceGroup) -> bool:
        """Whether the swap can be done, by a trial on another account."""
        source, status = self._moves(verb)
        trial = copy.copy(self.account)
        trial.tables = {seq_id: list(table) for seq_id, table in self.account.tables.items()}
        return trial.swap([seq.seq_id for seq in group.get_seqs(status)], _other(source)) is not None

    def _swap(self, key: Any, verb: str, device: Device, status: SequenceStatus) -> None:
        """As `ManagerWorld`; where a block took its key along, it still says how deep in a text it lies."""
        before = self._depths(key)
        super()._swap(key, verb, device, status)
        fault = "depth-left-behind" if verb == self.move else None
        for entry, (block_hash, depth) in self._depths(key).items():
            expected = before[entry][1] if before.get(entry, (None,))[0] == block_hash else depth
            self.log.expect(KEPT, f"num_hashed_tokens of {entry}", depth, expected, fault)

    def _depths(self, key: Any) -> dict[str, tuple[Any, Any]]:
        """Key and `num_hashed_tokens` of the learner's blocks that stand for a text, if they have such."""
        return {
            f"entry {position} of {self._seq_name(key, i)}'s block table": (theirs.block_hash, theirs.num_hashed_tokens)
            for i, seq in enumerate(self.groups[key].seqs)
            for position, block in enumerate(self.account.tables.get(seq.seq_id, []))
            if block.content is not None
            for theirs in self.manager.block_tables[seq.seq_id][position : position + 1]
            if hasattr(theirs, "num_hashed_tokens")
        }

    def fault(self, symptom: str, facts: Facts) -> str | None:
        """The thought behind a swap that went wrong."""
        if self.operation[0] != self.move:
            return None
        if self.refusing:
            return "half-done"
        if symptom == "pairs":
            return _fault_of_pairs(facts)
        source = self._moves(self.move)[0]
        return self._fault_of_all(source) or self._fault_of_one(symptom, facts, source)

    def _fault_of_all(self, source: Device) -> str | None:
        """Who has moved, and who has not."""
        seqs = self.groups[self.operation[1]].seqs
        moved = [seq.seq_id for seq in seqs if not seq.is_finished() and self._is_on(_other(source), seq)]
        if any(len(self._devices_of(seq_id)) > 1 for seq_id in moved):
            return "table-split"
        left = [seq_id for seq_id in moved if source in self._devices_of(seq_id)]
        if left == moved:
            frees = [self._num_free(device) == free for device, free in self.free_before.items()]
            return "nobody-moved" if all(frees) else "tables-not-replaced"
        if left:
            return "first-sequence-only"
        ended = [seq for seq in seqs if seq.is_finished() and self._is_on(source, seq)]
        return "finished-moved" if any(source not in self._devices_of(seq.seq_id) for seq in ended) else None

    def _fault_of_one(self, symptom: str, facts: Facts, source: Device) -> str | None:
        """What is wrong with one table, one block, or one pool."""
        got: Any = facts.get("got")
        expected: Any = facts.get("expected")
        if symptom == "length":
            return "next-block-taken" if equal(got, expected + 1) else None
        if symptom == "not-shared":
            if not {facts["whose"], facts["other"]} <= self._moved_names(source):
                return "content-key-left-behind"
            return "sharing-lost" if self._has_more_blocks(source) else None
        if symptom == "owners" and facts["whose"] in self._names_on(source):
            return "others-lose-it-too" if equal(got, 0) else None
        if symptom == "owners":
            return "second-owner-not-counted" if equal(got, 1) else None
        if symptom == "free" and facts["device"] == source.name:
            if isinstance(got, int) and got > expected:
                return "others-lose-it-too"
            return self._fault_of_freeing(got, source)
        return None

    def _has_more_blocks(self, source: Device) -> bool:
        """Whether the tables that have moved hold more blocks than before."""
        seqs = [seq for seq in self.groups[self.operation[1]].seqs if self._is_on(_other(source), seq)]
        numbers = {number for seq in seqs for number in self.manager.get_block_table(seq)}
        return len(numbers) > len(self.account.distinct([seq.seq_id for seq in seqs]))

    def _fault_of_freeing(self, got: Any, source: Device) -> str | None:
        """Too few came free: none, or those only that one table had; where no table had its own, nobody can tell."""
        seqs = [seq for seq in self.groups[self.operation[1]].seqs if self._is_on(_other(source), seq)]
        blocks = self.account.distinct([seq.seq_id for seq in seqs])
        own = sum(self.account.owners(block) == 1 for block in blocks)
        if own and equal(got, self.free_before[source]):
            return "source-kept"
        return "one-owner-let-go" if own and equal(got, self.free_before[source] + own) else None

    def _moved_names(self, source: Device) -> set[str]:
        """The sequences that this swap has moved."""
        key = self.operation[1]
        unfinished = self.groups[key].get_unfinished_seqs()
        names = {self._seq_name(key, i) for i, seq in enumerate(self.groups[key].seqs) if seq in unfinished}
        return names & self._names_on(_other(source))

    def _names_on(self, device: Device) -> set[str]:
        """The sequences that the account has on this device."""
        seqs = {self._seq_name(key, i): seq for key, group in self.groups.items() for i, seq in enumerate(group.seqs)}
        return {name for name, seq in seqs.items() if self._is_on(device, seq)}

    def _devices_of(self, seq_id: int) -> set[Any]:
        """Where the blocks of the learner's table lie."""
        return {block.device for block in self.manager.block_tables.get(seq_id, [])}

    def _num_free(self, device: Device) -> Any:
        count = self.manager.get_num_free_gpu_blocks if device is GPU else self.manager.get_num_free_cpu_blocks
        return count()


class _BackWorld(_MoveWorld):
    """Out, back, and out again."""

    verbs = (*_MoveWorld.verbs, "swap_in")
    move = "swap_in"


def _other(device: Device) -> Device:
    return CPU if device is GPU else GPU


def _fault_of_pairs(facts: Facts) -> str | None:
    """The thought behind a wrong result, where the blocks themselves have moved as they should."""
    got, expected = facts["got"], facts["expected"]
    if got is None:
        return "pairs-not-returned"
    if isinstance(got, dict):
        return "mapping-instead-of-pairs" if equal(list(got.items()), expected) else None
    if not isinstance(got, list) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in got):
        return None
    if any(hasattr(block, "block_number") for pair in got for block in pair):
        return "blocks-instead-of-numbers"
    if set(got) != set(expected):
        return "pairs-turned-round" if equal(got, [(target, source) for source, target in expected]) else None
    if equal(got, [(target, source) for source, target in expected]):
        return None  # turned round or in another order, nobody can tell
    if len(got) == len(expected):
        return "order-lost"
    return "pair-for-each-entry" if len(got) == facts["entries"] else None


def _move_sentences(verb: str, source: str, destination: str, status: str) -> dict[str, str]:
    """The misconceptions of a swap, in the words of its direction."""
    return {
        "sharing-lost": f"Sharing has to survive the journey: the tables of `{{group}}` share blocks, and a {source} "
        f"block that is met again keeps the {destination} block that it was given the first time.",
        "second-owner-not-counted": f"Every table that comes to hold a {destination} block is an owner: {destination} "
        "block {number} stands in more than one table, and its `ref_count` is {got}.",
        "source-kept": f"What has moved must be let go of where it was, or no room is made: your swap frees no "
        f"{source} block.",
        "one-owner-let-go": f"Each table that held a block was one owner, so each lets go: free a shared {source} "
        "block once for every table that leaves it, and not once for the swap.",
        "nobody-moved": f"A status says where a sequence is and not where it is going: `{verb}` moves the {status} "
        "ones, and yours has moved nobody.",
        "first-sequence-only": f"All {status} sequences of a request move together: after your swap one is on the "
        f"{destination}, and another still on the {source}.",
        "pair-for-each-entry": "A block crosses the bus once, so there is one pair for each distinct block and not one "
        "for each table entry: it should be {expected_pairs}, and yours is {pairs}.",
        "pairs-not-returned": "Who copies the bytes has nothing to go by but what you return: it should be "
        "{expected_pairs}, and your swap returns None.",
        "full-pool-answers": "A swap that cannot be done must say so: of the {distinct} distinct blocks that it "
        "needs over there it can have {free}, so raise ValueError.",
        "content-key-left-behind": f"With prefix caching equal contents share a block on the {destination}, too: hand "
        "the block's `block_hash` and `num_hashed_tokens` on to `allocate`.",
        "pairs-turned-round": f"A pair says from where to where, and this way is from the {source} to the "
        f"{destination}: it should be {{expected_pairs}}, and yours is {{pairs}}.",
        "half-done": "All or nothing: whether there is room has to be settled before the first block moves, since a "
        "call that is refused must leave everything as it was.",
        "status-changed": "A status is the scheduler's to write: your swap has set {seq} to {status}, and moving the "
        "blocks was all that was asked of it.",
    }


_MOVE_PROPERTIES = (*STATE, PAIRS, REFUSES, REFUSAL_KEEPS)
_COUNTS = ("get_num_free_gpu_blocks", "get_num_free_cpu_blocks")
_NEEDS = ("allocate", "append_slots", "fork", "free", "get_block_table", *_COUNTS)

STEPS = (
    Step(
        exercise_id="07-can-swap-out",
        title="is there room to leave",
        points=2,
        subject="BlockSpaceManager",
        writes=("can_swap_out",),
        needs=_NEEDS,
        reference=(BlockSpaceManager.can_swap_out,),
        properties=(DECISION, DECISION_KEEPS),
        misconceptions={
            "entries-counted": "A block that stands in several tables goes to the CPU once: the tables of `{group}` "
            "have {entries} entries, and behind them {blocks}.",
            "finished-counted": "A sequence that has ended goes nowhere: `{group}` takes {blocks}, counted over its "
            "unfinished sequences.",
            "first-sequence-only": "All sequences of a request leave together, so the blocks of every table count: "
            "`{group}` takes {blocks}, and not just those of its first sequence.",
            "shared-left-out": "A shared block goes to the CPU as well, once: `{group}` takes {blocks}, those that "
            "stand in several tables among them.",
            "gpu-pool-asked": "Blocks need room where they go: the CPU pool has {free_cpu} free, and what the GPU "
            "pool has does not matter.",
            "all-cpu-blocks-counted": "Others have blocks on the CPU, too: {free_cpu} of its {total_cpu} can be had, "
            "and `{group}` takes {blocks}.",
            "one-must-stay-free": "The CPU pool may be filled to its last block: `{group}` takes {blocks}, the pool "
            "has {free_cpu} free, and that is enough.",
            "next-token-counted": "Nobody grows on the CPU, so nothing is added for the next token on the way out: "
            "`{group}` takes {blocks}, and the pool has {free_cpu} free.",
            "watermark-kept": "The watermark is for the GPU, where sequences grow: on the CPU `{group}` takes "
            "{blocks}, and all {free_cpu} that are free can be had.",
            "status-instead-of-bool": "Whether there is room has two answers, True and False, and an `AllocStatus` is "
            "always true: LATER and NEVER are for those who wait to get in.",
            "asks-by-doing": "A question moves nothing: whether there is room can be told from two numbers, and after "
            "yours something was no longer where it had been.",
        },
        world=_CanSwapOutWorld,
        examples=CAN_SWAP_OUT_EXAMPLES,
        setups=random_sizes,
    ),
    Step(
        exercise_id="07-swap-out",
        title="out, with the sharing intact",
        points=4,
        subject="BlockSpaceManager",
        writes=("_move", "_swap", "swap_out"),
        through=("swap_out",),
        needs=_NEEDS,
        reference=(BlockSpaceManager._move, BlockSpaceManager._swap, BlockSpaceManager.swap_out),
        properties=_MOVE_PROPERTIES,
        misconceptions={
            **_move_sentences("swap_out", "GPU", "CPU", "RUNNING"),
            "table-split": "A table moves as a whole, shared blocks included, and who stays keeps theirs: after your "
            "swap one table has blocks on the GPU and on the CPU.",
            "others-lose-it-too": "A swap lets go for the sequences that move and for nobody else: a GPU block stays "
            "as long as a table of another sequence holds it.",
            "finished-moved": "Only RUNNING sequences move: one that has ended keeps its GPU blocks until somebody "
            "frees it.",
            "tables-not-replaced": "The tables are what the sequences read by: put each new table in the place of the "
            "old one, since yours still list the blocks that were left.",
            "depth-left-behind": "The evictor goes by how deep in its text a block lies, so that a beginning outlives "
            "what follows: hand `num_hashed_tokens` on to `allocate`, beside the `block_hash`.",
            "order-lost": "Pairs stand in the order in which the tables first name the blocks: it should be "
            "{expected_pairs}, and yours is {pairs}.",
            "mapping-instead-of-pairs": "The scheduler appends the pairs of one swap to those of the others, and from "
            "a dict it would append the keys alone: return a list of pairs.",
            "blocks-instead-of-numbers": "The worker knows no block objects, it knows rows of a tensor: make each pair "
            "of two `block_number`s.",
        },
        world=_MoveWorld,
        examples=(
            History.read(
                sizes(4, 8, 8),
                "allocate a 6 1 0",
                "fork a 0",
                "append_slots a 0 0 1",
                "append_slots a 1 1 1",
                "swap_out a",
            ),
            History.read(sizes(4, 4, 2), "allocate a 8 2 0", "swap_out a"),
            History.read(sizes(4, 4, 6), "allocate a 8 2 0", "swap_out a"),
            History.read(sizes(4, 3, 1), "allocate a 8 1 0", "swap_out a"),
            History.read(sizes(4, 4, 4), "allocate a 4 2 0", "finish a 1", "swap_out a"),
            History.read(
                sizes(4, 4, 4, caching=True), "allocate a 4 1 0", "allocate b 4 1 0", "swap_out a", "swap_out b"
            ),
        ),
        setups=random_sizes,
    ),
    Step(
        exercise_id="07-can-swap-in",
        title="is there room to come back",
        points=2,
        subject="BlockSpaceManager",
        writes=("can_swap_in",),
        needs=_NEEDS,
        after=("07-swap-out",),
        reference=(BlockSpaceManager.can_swap_in,),
        properties=(DECISION, DECISION_KEEPS),
        misconceptions={
            "next-token-forgotten": "Who comes back needs room for the next token at once, or is thrown out again: "
            "`{group}` asks for {blocks} and {num_swapped} more, one for each SWAPPED sequence.",
            "own-blocks-forgotten": "The next tokens come on top of what comes back: `{group}` asks for {blocks} and "
            "{num_swapped} more, one for each SWAPPED sequence.",
            "one-must-stay-free": "Exactly enough is enough: {required} blocks are asked for, {free} of {total} are "
            "free, and no more than {reserved} of them have to stay so.",
            "last-block-looked-at": "Whether a last block has room is not looked at, here as in `can_append_slots`, "
            "since a shared one has to be copied: `{group}` asks for {blocks} and {num_swapped} more.",
            "one-block-for-all": "Each SWAPPED sequence places a token of its own in the step in which it comes back: "
            "`{group}` asks for {blocks} and {num_swapped} more, and not for 1 more.",
            "entries-counted": "A block that stands in several tables comes back once: the tables of `{group}` have "
            "{entries} entries, and behind them {blocks}.",
            "finished-counted": "A sequence that has ended neither comes back nor goes on: `{group}` asks for {blocks} "
            "and {num_swapped} more, counted without it.",
            "watermark-left-out-of-never": "With {reserved} of {total} blocks kept free, {required} never fit: LATER "
            "would be repeated for ever, and everybody behind would wait for it.",
            "watermark-ignored": "The watermark holds for those who come back as for those who are new: {required} are "
            "asked for beside the {reserved} of {total} blocks that are kept free.",
            "later-instead-of-never": "LATER is a promise that waiting helps: {required} blocks and a watermark of "
            "{reserved} exceed a pool of {total}, whoever leaves it, so the answer is NEVER.",
            "cpu-pool-asked": "The way back leads to the GPU: {required} blocks are asked for there, its pool has "
            "{free} free, and what the CPU pool has does not matter.",
            "bool-instead-of-status": "Three answers are possible, and True and False are two: return an "
            "`AllocStatus`, since a request that has to wait is not one that can never run.",
        },
        world=_CanSwapInWorld,
        examples=CAN_SWAP_IN_EXAMPLES,
        setups=random_sizes,
    ),
    Step(
        exercise_id="07-swap-in",
        title="and back",
        points=2,
        subject="BlockSpaceManager",
        writes=("swap_in",),
        needs=(*_NEEDS, "swap_out"),
        after=("07-swap-out",),
        reference=(BlockSpaceManager.swap_in,),
        properties=_MOVE_PROPERTIES,
        misconceptions={
            **_move_sentences("swap_in", "CPU", "GPU", "SWAPPED"),
            "next-block-taken": "The block for the next token is asked for and not taken: `append_slots` takes it when "
            "it is needed, and a swap brings back what has left, here {distinct} distinct blocks.",
        },
        world=_BackWorld,
        examples=(
            History.read(sizes(4, 5, 8), "allocate a 8 2 0", "swap_out a", "swap_in a"),
            History.read(sizes(4, 2, 2), "allocate a 8 1 0", "swap_out a", "allocate b 4 1 0", "swap_in a"),
            History.read(sizes(4, 6, 6), "allocate a 8 2 0", "swap_out a", "swap_in a", "swap_out a"),
            History.read(sizes(4, 5, 4), "allocate a 6 2 0", "append_slots a 0 0 1", "swap_out a", "swap_in a"),
            History.read(sizes(4, 4, 4), "allocate a 4 2 0", "finish a 1", "swap_out a", "swap_in a"),
            History.read(
                sizes(4, 3, 2, caching=True),
                "allocate a 8 1 0",
                "swap_out a",
                "allocate b 9 1 1",
                "free b 0",
                "swap_in a",
            ),
        ),
        setups=random_sizes,
    ),
)
