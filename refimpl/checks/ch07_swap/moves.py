"""07-swap-out and 07-swap-in: out with the sharing intact, and back.

Where a swap goes wrong the symptom tells.
"""

from __future__ import annotations

import copy
from typing import Any

from refimpl.block import Device
from refimpl.block_manager import AllocStatus, BlockSpaceManager
from refimpl.checks.manager_comparison import KEPT, PAIRS, STATE, Facts
from refimpl.checks.manager_world import CPU, GPU, REFUSAL_KEEPS, REFUSES, random_sizes, sizes
from refimpl.checks.step import History, Operation, Step, equal
from refimpl.checks.swap_world import NEEDS, SwapWorld, num_distinct, num_required
from refimpl.sequence import SequenceGroup, SequenceStatus


class _MoveWorld(SwapWorld):
    """Requests go out and, where `verbs` allow it, back and out again."""

    verbs: tuple[str, ...] = ("allocate", "append_slots", "fork", "free", "finish", "swap_out")
    often = ("swap_out", "swap_in")
    move = "swap_out"  # what this step asks for
    num_moves = 0  # so many times, in this history

    def perform(self, operation: Operation) -> None:
        """As `SwapWorld`; what was compared before something differed is no merit of the answer."""
        self.num_moves += operation[0] == self.move
        before = dict(self.log.tally)
        try:
            super().perform(operation)
        except Exception:
            self.log.take_back(before)
            raise

    def possible(self, operation: Operation) -> bool:
        """As `SwapWorld`; not where who asks first is told to stay away although a swap would fit."""
        if not super().possible(operation):
            return False
        if operation[0] not in ("swap_out", "swap_in"):
            return True
        group = self.groups[operation[1]]
        if operation[0] == "swap_out":
            asked = num_distinct(self.account, group) <= self.account.free(CPU)
        else:
            asked = self.account.answer(num_required(self.account, group)) is AllocStatus.OK
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
            return _fault_of_pairs(facts) if self.num_moves == 1 else None  # later ones may tell of earlier swaps
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


SWAP_OUT = Step(
    exercise_id="07-swap-out",
    title="out, with the sharing intact",
    points=4,
    subject="BlockSpaceManager",
    writes=("_move", "_swap", "swap_out"),
    through=("swap_out",),
    needs=NEEDS,
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
        History.read(sizes(4, 4, 4, caching=True), "allocate a 4 1 0", "allocate b 4 1 0", "swap_out a", "swap_out b"),
        History.read(
            sizes(4, 4, 2, caching=True),
            "allocate a 4 1 0",
            "swap_out a",
            "free a 0",
            "allocate b 12 1 1",
            "swap_out b",
        ),
    ),
    setups=random_sizes,
)
SWAP_IN = Step(
    exercise_id="07-swap-in",
    title="and back",
    points=2,
    subject="BlockSpaceManager",
    writes=("swap_in",),
    needs=(*NEEDS, "swap_out"),
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
        History.read(sizes(4, 4, 4, caching=True), "allocate a 4 1 0", "allocate b 4 1 0", "swap_out b", "swap_in b"),
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
)
