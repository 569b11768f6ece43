"""The learner's block manager compared with the account: tables, owners, free counts, and what a call wants copied.

Only what the contract promises is looked at: `get_block_table`, `block_tables`, the two free counts, and a block's
`block_number`, `device` and `ref_count`. Numbers are compared for sameness, never with one the account would choose.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from refimpl.block import Device
from refimpl.checks.manager_account import Account, Block, Pair
from refimpl.checks.step import Log, equal, show
from refimpl.sequence import Sequence

TABLES = "every sequence has the blocks that its tokens fill"
SHARING = "a block is shared by those who should share it, and by nobody else"
OWNERS = "ref_count is the number of tables that hold the block"
FREE = "what no table holds is free"
KEPT = "everything else stays where it was"
PAIRS = "the pairs say what is to be copied, and where to"

STATE = (TABLES, SHARING, OWNERS, FREE, KEPT)  # compared after every operation

Facts = dict[str, Any]
Known = dict[tuple[Device, int], tuple[Block, str]]  # device and number -> the account's block, and who holds it


class Comparison:
    """Compares, and says in the log what differs.

    `fault(symptom, facts)` is asked which misconception a difference tells.

    The symptoms: no-table, left-table, length, not-in-pool, mixed-up (a block of somebody else's), not-shared, moved (a
    block has changed that should not), owners, device, free, pairs; and answer and forgotten (the cache has lost a
    content), which a world compares by itself.
    """

    def __init__(self, log: Log, manager: Any, account: Account, fault: Callable[[str, Facts], str | None]) -> None:
        self.log, self.manager, self.account, self.fault = log, manager, account, fault
        self.numbers: dict[Block, int] = {}  # block of the account -> the learner's number for it
        self._before: dict[Block, int] = {}  # the same, before the last operation

    def state(self, seqs: list[tuple[str, Sequence]], facts: Facts, keeps: str = "") -> None:
        """Everything, for these named sequences; `keeps` is the property where nothing may have changed."""
        known: Known = {}
        for name, seq in seqs:
            self._table(seq, name, known, facts, keeps)
        for name, seq in seqs:
            self._owners(seq, name, facts, keeps)
        counts = {
            Device.GPU: self.manager.get_num_free_gpu_blocks,
            Device.CPU: self.manager.get_num_free_cpu_blocks,
        }
        for device, count in counts.items():
            got = self.log.ask(f"manager.get_num_free_{device.name.lower()}_blocks()", count)
            what = f"the number of free {device.name} blocks"
            on = facts | {"device": device.name}
            self._expect(keeps or FREE, what, got, self.account.free(device), "free", on)
        self._before = self.numbers
        self.numbers = {block: number for (_, number), (block, _) in known.items()}

    def pairs(self, got: Any, pairs: list[Pair], facts: Facts) -> None:
        """What was got from a call, numbers of (source, destination). The state has been compared: both are known."""
        expected = [(self._before[source], self.numbers[target]) for source, target in pairs]
        seen = [tuple(pair) if isinstance(pair, list) else pair for pair in got] if _is_list(got) else got
        facts = facts | {"num_pairs": len(expected), "pairs": show(got), "expected_pairs": show(expected)}
        self._expect(PAIRS, "the result", seen, expected, "pairs", facts)

    def _table(self, seq: Sequence, name: str, known: Known, facts: Facts, keeps: str) -> None:
        table = self.account.tables.get(seq.seq_id)
        facts = facts | {"whose": name}
        has_one = self.log.ask("manager.block_tables", lambda: seq.seq_id in self.manager.block_tables)
        if table is None:
            should, but = f"{name} should have no block table", "it has one"
            self._hold(keeps or TABLES, not has_one, should, but, "left-table", facts)
            return
        self._hold(keeps or TABLES, has_one, f"{name} should have a block table", "it has none", "no-table", facts)
        got = self.log.ask(f"manager.get_block_table({name})", lambda: list(self.manager.get_block_table(seq)))
        facts |= {"table": show(got)}
        what = f"the length of {name}'s block table"
        self._expect(keeps or TABLES, what, len(got), len(table), "length", facts)
        for position, (block, number) in enumerate(zip(table, got, strict=True)):
            self._entry(block, number, name, known, facts | {"number": show(number), "position": position}, keeps)

    def _entry(self, block: Block, number: Any, name: str, known: Known, facts: Facts, keeps: str) -> None:
        entry = f"entry {facts['position']} of {name}'s block table"
        should = f"{entry} should be the number of a {block.device.name} block"
        fits = _is_below(number, self.account.total[block.device])
        self._hold(keeps or TABLES, fits, should, f"it is {show(number)}", "not-in-pool", facts)
        place = (block.device, operator.index(number))
        holder, whose = known.get(place, (block, name))
        should, but = (
            f"{entry} should be a block that {whose} does not hold",
            f"it is block {number}, which {whose} holds",
        )
        self._hold(keeps or SHARING, holder is block, should, but, "mixed-up", facts | {"other": whose})
        other = next((owner for held, owner in known.values() if held is block), name)
        should, but = f"{entry} should be the block that {other} holds", f"it is block {number}"
        shared = other == name or place in known
        self._hold(keeps or SHARING, shared, should, but, "not-shared", facts | {"other": other})
        before = self.numbers.get(block, number)
        self._expect(keeps or KEPT, entry, number, before, "moved", facts | {"before": before})
        known.setdefault(place, (block, name))

    def _owners(self, seq: Sequence, name: str, facts: Facts, keeps: str) -> None:
        for position, block in enumerate(self.account.tables.get(seq.seq_id, [])):
            theirs = self.manager.block_tables[seq.seq_id][position]
            number = theirs.block_number
            seen = facts | {"whose": name, "number": number, "position": position}
            what = f"ref_count of block {number} in {name}'s table"
            self._expect(keeps or OWNERS, what, theirs.ref_count, self.account.owners(block), "owners", seen)
            what = f"device of block {number} in {name}'s table"
            self._expect(keeps or TABLES, what, theirs.device, block.device, "device", seen)

    def _expect(self, name: str, what: str, got: Any, expected: Any, symptom: str, facts: Facts) -> None:
        if equal(got, expected):
            self.log.expect(name, what, got, expected)
            return
        facts = facts | {"got": got, "expected": expected}
        fault = self.fault(symptom, facts)
        self.log.expect(name, what, got, expected, fault, **{**facts, "got": show(got), "expected": show(expected)})

    def _hold(self, name: str, holds: bool, should: str, but: str, symptom: str, facts: Facts) -> None:
        fault = None if holds else self.fault(symptom, facts)
        self.log.hold(name, holds, should, but, fault, **facts)


class StateOnly(Comparison):
    """For steps that are about answers: nobody looks at what is to be copied."""

    def pairs(self, got: Any, pairs: list[Pair], facts: Facts) -> None:
        """Not compared."""


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_below(number: Any, total: int) -> bool:
    """Whether it is the number of one of `total` blocks."""
    try:
        return 0 <= operator.index(number) < total
    except TypeError:
        return False
