"""07-can-swap-out and 07-can-swap-in: is there room to leave, and to come back.

For each question there is a list of theories of how a wrong answer comes about. Each answer, in the history at hand and
in the step's examples, drops those that it contradicts; a thought is named when it alone explains all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from refimpl.block_manager import AllocStatus, BlockSpaceManager
from refimpl.checks.manager_account import Account
from refimpl.checks.manager_comparison import Facts, StateOnly
from refimpl.checks.manager_world import CPU, DECISION, DECISION_KEEPS, GPU, random_sizes, sizes
from refimpl.checks.step import History, Log, Operation, Setup, Step, counted
from refimpl.checks.swap_world import NEEDS, SwapWorld, num_distinct, num_required, num_swapped, seq_ids
from refimpl.checks.thoughts import Theories
from refimpl.sequence import SequenceGroup, SequenceStatus

Theory = Callable[[Account, SequenceGroup], Any]  # what a learner who thinks so answers


class _QuestionWorld(SwapWorld):
    """One of the two questions, put again and again, with theories beside it."""

    question = ""
    keeps_status = DECISION_KEEPS
    theories: tuple[tuple[str, Theory], ...] = ()  # a misconception and what it answers
    examples: tuple[History, ...] = ()  # of the step

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.comparison = StateOnly(log, self.manager, self.account, self.fault)
        self.suspects = Theories(self.theories)

    def possible(self, operation: Operation) -> bool:
        """As `SwapWorld`; a request is swapped out only where there is room, since refusals are not asked about."""
        if not super().possible(operation):
            return False
        if operation[0] != "swap_out":
            return True
        return len(self.account.distinct(seq_ids(self.groups[operation[1]]))) <= self.account.free(CPU)

    def _compare(self, facts: Facts, keeps: str = "") -> None:
        super()._compare(facts, keeps or DECISION_KEEPS)

    def _decide(self, line: str, asked: SequenceGroup, expected: Any, **facts: Any) -> None:
        self.suspects.ask(self.account, asked)
        facts |= {
            "entries": _entries(self.account, asked),
            "blocks": counted(num_distinct(self.account, asked), "block"),
            "free_cpu": self.account.free(CPU),
            "total_cpu": self.account.total[CPU],
        }
        super()._decide(line, asked, expected, **facts)
        self.suspects.hear(expected)

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        """A KeyError tells of a finished sequence, where there is one that has no table any more."""
        super().raised(facts)
        if self.operation[0] != self.question or self.replaying:
            return None
        seqs = self.groups[self.operation[1]].seqs
        gone = any(seq.is_finished() and seq.seq_id not in self.account.tables for seq in seqs)
        return (KeyError, "finished-counted") if gone and self.answers_the_first else None

    @cached_property
    def answers_the_first(self) -> bool:
        """Whether the worked example, in which nobody ends, is answered: if not, no error is about the ended."""
        return self.replayed(self.examples[0])[1]

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


def _entries(account: Account, group: SequenceGroup) -> int:
    return sum(len(account.tables.get(seq_id, [])) for seq_id in seq_ids(group))


def _of_one_table(account: Account, group: SequenceGroup) -> int:
    """Blocks that no other table holds."""
    return sum(account.owners(block) == 1 for block in account.distinct(seq_ids(group)))


def _with_finished(account: Account, group: SequenceGroup) -> int:
    return len(account.distinct(seq_ids(group, unfinished=False)))


def _of_first(account: Account, group: SequenceGroup) -> int:
    return len(account.distinct(seq_ids(group)[:1]))


def _with_shared_prompts(account: Account, group: SequenceGroup) -> int:
    """The prompt's blocks once, and beside them what each sequence has more."""
    seqs = group.get_unfinished_seqs()
    prompt = account.required(seqs[0].get_prompt_len())
    return prompt + sum(account.required(seq.get_len()) - prompt for seq in seqs)


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
    History.read(sizes(4, 8, 1), "allocate a 3 2 0", "append_slots a 0 0 1", "can_swap_out a"),
    History.read(
        sizes(1, 8, 3),
        "allocate a 1 3 0",
        "append_slots a 0 0 1",
        "append_slots a 1 0 1",
        "append_slots a 2 0 1",
        "can_swap_out a",
    ),
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
        ("copy-not-counted", lambda account, group: _with_shared_prompts(account, group) <= account.free(CPU)),
        ("shared-left-out", lambda account, group: _of_one_table(account, group) <= account.free(CPU)),
        ("gpu-pool-asked", lambda account, group: num_distinct(account, group) <= account.free(GPU)),
        ("all-cpu-blocks-counted", lambda account, group: num_distinct(account, group) <= account.total[CPU]),
        ("one-must-stay-free", lambda account, group: num_distinct(account, group) < account.free(CPU)),
        (
            "watermark-kept",
            lambda account, group: num_distinct(account, group) <= account.free(CPU) - account.watermark_blocks,
        ),
        (
            "next-token-counted",
            lambda account, group: num_distinct(account, group) + group.num_unfinished_seqs() <= account.free(CPU),
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


def _with_full_last_blocks(account: Account, group: SequenceGroup) -> int:
    full = sum(seq.get_len() % account.block_size == 0 for seq in group.get_seqs(SequenceStatus.SWAPPED))
    return num_distinct(account, group) + full


def _nothing(watermark: int) -> int:
    return 0


def _the_watermark(watermark: int) -> int:
    return watermark


def _one_more(watermark: int) -> int:
    return watermark + 1


def _keeping(of_all: Callable[[int], int], of_free: Callable[[int], int]) -> Theory:
    """The right number of blocks, where so many are kept back of all blocks and of the free ones."""

    def theory(account: Account, group: SequenceGroup) -> AllocStatus:
        required, watermark = num_required(account, group), account.watermark_blocks
        if account.total[GPU] - required < of_all(watermark):
            return AllocStatus.NEVER
        return AllocStatus.OK if account.free(GPU) - required >= of_free(watermark) else AllocStatus.LATER

    return theory


def _later_for_never(account: Account, group: SequenceGroup) -> AllocStatus:
    answer = account.answer(num_required(account, group))
    return AllocStatus.LATER if answer is AllocStatus.NEVER else answer


def _of_the_cpu(account: Account, group: SequenceGroup) -> AllocStatus:
    if account.answer(num_required(account, group)) is AllocStatus.NEVER:
        return AllocStatus.NEVER
    fits = account.free(CPU) - num_required(account, group) >= account.watermark_blocks
    return AllocStatus.OK if fits else AllocStatus.LATER


class _CanSwapInWorld(_QuestionWorld):
    """Requests are swapped out, others take GPU blocks, and the question is put in between."""

    question = "can_swap_in"
    verbs = ("allocate", "append_slots", "fork", "free", "finish", "swap_out", "can_swap_in")
    often = ("swap_out", "can_swap_in")
    theories = (
        ("next-token-forgotten", _asking(num_distinct)),
        ("last-block-looked-at", _asking(_with_full_last_blocks)),
        ("one-block-for-all", _asking(lambda account, group: num_distinct(account, group) + 1)),
        ("entries-counted", _asking(lambda account, group: _entries(account, group) + num_swapped(group))),
        ("finished-counted", _asking(lambda account, group: _with_finished(account, group) + num_swapped(group))),
        ("finished-counted", _asking(lambda account, group: _with_finished(account, group) + len(group.seqs))),
        ("finished-counted", _asking(lambda account, group: num_distinct(account, group) + len(group.seqs))),
        ("watermark-left-out-of-never", _keeping(_nothing, _the_watermark)),
        ("watermark-ignored", _keeping(_nothing, _nothing)),
        ("watermark-ignored", _keeping(_the_watermark, _nothing)),
        ("own-blocks-forgotten", _asking(lambda account, group: num_swapped(group))),
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


CAN_SWAP_OUT = Step(
    exercise_id="07-can-swap-out",
    title="is there room to leave",
    points=2,
    subject="BlockSpaceManager",
    writes=("can_swap_out",),
    needs=NEEDS,
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
        "copy-not-counted": "Siblings share a prompt until they write: who had to copy its last block has one of its "
        "own, and `{group}` takes {blocks}, as the tables say and lengths do not.",
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
)
CAN_SWAP_IN = Step(
    exercise_id="07-can-swap-in",
    title="is there room to come back",
    points=2,
    subject="BlockSpaceManager",
    writes=("can_swap_in",),
    needs=NEEDS,
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
)
