"""Requests that leave the GPU and come back, where others have CPU blocks: what chapter 07 plays histories on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from refimpl.checks.manager_account import Account, Block
from refimpl.checks.manager_comparison import Facts
from refimpl.checks.manager_world import CPU, GPU, REFUSAL_KEEPS, ManagerWorld
from refimpl.checks.step import Operation
from refimpl.sequence import SequenceGroup, SequenceStatus

OTHERS = -1  # stands in the account for other requests' sequences on the CPU

_COUNTS = ("get_num_free_gpu_blocks", "get_num_free_cpu_blocks")
NEEDS = ("allocate", "append_slots", "fork", "free", "get_block_table", *_COUNTS)


class SwapWorld(ManagerWorld):
    """Requests that are swapped, sequences that end in between, and CPU blocks that others have.

    Beside `ManagerWorld`'s operations: ("take_cpu",), a block of the CPU pool goes to somebody else.
    """

    often: tuple[str, ...] = ()  # the operations that a random history has more of
    refusing = False  # whether the call is one that must be refused

    def choices(self) -> Iterable[Operation]:
        """Those of `ManagerWorld` and this chapter's own, each looked at once; what the step asks for comes often."""
        often = [operation for operation in self._all_choices() if operation[0] in self.verbs]
        often += [operation for operation in often if operation[0] in self.often] * 3
        possible = {operation: self.possible(operation) for operation in dict.fromkeys(often)}
        return [operation for operation in often if possible[operation]]

    def _all_choices(self) -> Iterator[Operation]:
        yield from super()._all_choices()
        yield ("take_cpu",)

    def possible(self, operation: Operation) -> bool:
        """As a scheduler would: what it asks for has room on the GPU, and leaves from where it is."""
        verb, *arguments = operation
        if verb == "take_cpu":
            return hasattr(self.manager, "cpu_allocator") and self.account.free(CPU) > 0
        if not super().possible(operation):
            return False
        if verb == "allocate":
            return len(arguments) > 2 and self.account.required(arguments[1]) <= self.account.free(GPU)
        group = self.groups[arguments[0]]
        if verb in ("can_swap_out", "can_swap_in"):
            return bool(group.get_seqs(self._moves(verb.removeprefix("can_"))[1]))
        if verb == "append_slots":
            return arguments[3] == 1 and self.account.free(GPU) > 0 and not group.seqs[arguments[1]].is_finished()
        if verb == "fork":
            return len(arguments) == 2 and not group.seqs[arguments[1]].is_finished()
        return True

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        """Nothing to tell; the call is one that should return."""
        self.refusing = False
        return None

    def refused(self, facts: Facts) -> tuple[str | None, str | None]:
        """An answer where there is no room; the call is one that should raise."""
        self.refusing = True
        return "full-pool-answers", None

    def _take_cpu(self) -> None:
        self.manager.cpu_allocator.allocate()
        self.account.tables.setdefault(OTHERS, []).append(Block(CPU, None))
        self.log.note("manager.cpu_allocator.allocate()    # for somebody else")

    def _call(self, line: str, function: Any, *arguments: Any, facts: Facts) -> Any:
        before = self._statuses()
        got = super()._call(line, function, *arguments, facts=facts)
        self._insist_on_statuses(before, self.keeps_status)
        return got

    def _refuse(self, line: str, function: Any, *arguments: Any, facts: Facts) -> None:
        before = self._statuses()
        super()._refuse(line, function, *arguments, facts=facts)
        self._insist_on_statuses(before, REFUSAL_KEEPS)


def seq_ids(group: SequenceGroup, *, unfinished: bool = True) -> list[int]:
    """Of the unfinished sequences of a group, or of all."""
    return [seq.seq_id for seq in (group.get_unfinished_seqs() if unfinished else group.seqs)]


def num_distinct(account: Account, group: SequenceGroup) -> int:
    """Blocks that the unfinished sequences of a group hold, by the account."""
    return len(account.distinct(seq_ids(group)))


def num_required(account: Account, group: SequenceGroup) -> int:
    """Blocks that a group asks for when it comes back, by the account."""
    return num_distinct(account, group) + num_swapped(group)


def num_swapped(group: SequenceGroup) -> int:
    """Sequences of a group that are swapped out."""
    return group.num_seqs(SequenceStatus.SWAPPED)
