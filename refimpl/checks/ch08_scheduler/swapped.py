"""08-swapped: who comes back.

The oldest first, up to the first that has to wait; who can never come back is ended and reported.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from refimpl.block_manager import AllocStatus
from refimpl.checks.manager_account import Pair
from refimpl.checks.scheduler_account import IGNORED, SWAPPED, Refused, Request, SchedulerAccount
from refimpl.checks.scheduler_world import MODES, NEXT, SchedulerWorld, random_sizes, sizes, step_of
from refimpl.checks.step import History, Setup
from refimpl.sequence import SequenceStatus


class _NoSlot(SchedulerAccount):
    def append_slots(self, request: Request) -> None:
        if 3 not in self.now.phases:
            super().append_slots(request)


class _IgnoredKeepsCpuBlocks(SchedulerAccount):
    def ignore_swapped(self, request: Request) -> None:
        self.swapped.remove(request)
        for member in request.unfinished:
            member.status = IGNORED
        self.now.ignored.append(request)


class _SwappedNeverIsLater(SchedulerAccount):
    def answer_to_swapped(self, request: Request) -> AllocStatus:
        answer = super().answer_to_swapped(request)
        return AllocStatus.LATER if answer is AllocStatus.NEVER else answer


class _SwappedLaterIsNever(SchedulerAccount):
    def answer_to_swapped(self, request: Request) -> AllocStatus:
        answer = super().answer_to_swapped(request)
        return AllocStatus.NEVER if answer is AllocStatus.LATER else answer


class _SwappedOvertakes(SchedulerAccount):
    def stops_at_swapped(self, request: Request) -> bool:
        return False


class _BackLengthCharged(SchedulerAccount):
    def back_tokens(self, request: Request) -> int:
        return sum(len(member.tokens) for member in request.unfinished)


class _BackLengthSaid(_BackLengthCharged):
    def back_chunk(self, request: Request) -> int:
        return self.back_tokens(request)


class _BackOneToken(SchedulerAccount):
    def back_tokens(self, request: Request) -> int:
        return 1


class _BackNothingCharged(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        if 3 not in self.now.phases:
            super().charge(num_tokens, num_seqs)


class _BackSeqsNotCharged(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        super().charge(num_tokens, 0 if 3 in self.now.phases else num_seqs)


class _BackCountedTooLate(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        super().charge(0 if 3 in self.now.phases else num_tokens, num_seqs)


class _BackSeqsThatAreThere(SchedulerAccount):
    def back_seqs(self, request: Request) -> int:
        return len(request.of(SWAPPED))


class _BackThereCharged(SchedulerAccount):
    def back_seqs(self, request: Request) -> int:
        return len(request.members)


class _BackOneSeqCharged(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        super().charge(num_tokens, 1 if 3 in self.now.phases else num_seqs)


class _BackFinishedCharged(SchedulerAccount):
    def back_tokens(self, request: Request) -> int:
        return len(request.members)


class _BackAllCharged(SchedulerAccount):
    def back_seqs(self, request: Request) -> int:
        return max(request.wanted, len(request.members))


class _BackFinishedRun(SchedulerAccount):
    """Who has ended has no blocks to be told of, and no slot can be appended to them."""

    def bring_back(self, request: Request) -> None:
        super().bring_back(request)
        if any(member.has_ended for member in request.members):
            raise Refused("KeyError")


class _CopiesNotLookedAt(SchedulerAccount):
    def copies_safe(self) -> bool:
        return True


class _CopiesLookedAtOnce(_CopiesNotLookedAt):
    def come_back(self) -> None:
        if SchedulerAccount.copies_safe(self):
            super().come_back()


class _CopiesLookedAtLast(SchedulerAccount):
    def copies_safe(self) -> bool:
        return not self.now.swapped_in or super().copies_safe()


class _CopiesBeforeNever(SchedulerAccount):
    def answer_to_swapped(self, request: Request) -> AllocStatus:
        return super().answer_to_swapped(request) if self.copies_safe() else AllocStatus.LATER


class _BudgetBeforeNever(SchedulerAccount):
    def answer_to_swapped(self, request: Request) -> AllocStatus:
        return super().answer_to_swapped(request) if self.has_room_back(request) else AllocStatus.LATER


class _StaysSwapped(SchedulerAccount):
    def set_status(self, request: Request, before: SequenceStatus, after: SequenceStatus) -> None:
        if before is not SWAPPED:
            super().set_status(request, before, after)


class _NewestComesBack(SchedulerAccount):
    def in_turn_back(self, queue: list[Request]) -> Iterable[Request]:
        return queue[::-1]


class _OneComesBack(SchedulerAccount):
    def in_turn_back(self, queue: list[Request]) -> Iterator[Request]:
        for request in list(queue):
            if not self.now.swapped_in:
                yield request


class _LastMovedIn(SchedulerAccount):
    def note_moved_in(self, pairs: list[Pair]) -> None:
        self.now.moved_in = list(pairs)


EXAMPLES = (
    History.read(sizes(4, 4, 8, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", NEXT, NEXT, "abort a", NEXT),
    History.read(sizes(4, 4, 8), "add a 7 2 0 0", NEXT, NEXT, NEXT, NEXT),
    History.read(sizes(4, 5, 8, percent=20), "add a 7 2 0 0", NEXT, NEXT, NEXT, NEXT, NEXT),
    History.read(sizes(4, 4, 8), "add a 4 1 0 0", "add b 6 2 0 0", NEXT, NEXT, NEXT),
    History.read(sizes(4, 5, 8, mode="swap"), "add a 4 1 0 0", "add b 12 1 0 0", "add c 4 1 0 0", NEXT, NEXT, NEXT),
    History.read(sizes(4, 6, 8), "add a 16 1 0 0", "add b 7 2 0 0", NEXT, NEXT, "abort a", NEXT),
    History.read(sizes(4, 3, 2, mode="swap"), "add a 3 3 0 0", "add b 3 1 0 0", "add c 3 1 0 0", NEXT, NEXT, NEXT),
    History.read(sizes(4, 2, 8, mode="swap"), "add a 4 1 0 0", "add b 4 1 0 0", NEXT, NEXT, "end a 0", NEXT),
    History.read(  # b and c would come back in one step, and c would be given what b copies
        sizes(3, 6, 8, caching=True, mode="swap"),
        *("add a 1 3 0 0", "add b 8 2 1 0", "add c 1 1 2 0", "schedule 1", "schedule 1", NEXT),
    ),
    History.read(  # b would be given what a copies
        sizes(3, 5, 8, caching=True, mode="swap"),
        *("add a 1 2 0 0", "add b 9 1 1 0", "schedule 1", "schedule 1", "fork a 0", NEXT),
    ),
    History.read(  # so it would here, but it can never come back
        sizes(2, 4, 8, caching=True),
        *("add a 2 1 0 0", "add b 6 2 1 0", NEXT, NEXT, "fork a 0", NEXT),
    ),
    History.read(  # b can never come back, and the step would have no room for it
        sizes(4, 4, 8, max_seqs=3),
        *("add a 2 1 0 0", "add b 9 2 0 0", NEXT, "fork a 0", NEXT, NEXT),
    ),
    History.read(  # b is one sequence and is charged the two that it is going to be
        sizes(3, 4, 8, caching=True, mode="swap", max_seqs=3),
        *("add a 1 1 0 0", "add b 6 2 1 0", "schedule 2", "fork a 0", "schedule 1", NEXT),
    ),
    History.read(  # c is one sequence and is charged the two that it is going to be
        sizes(4, 6, 8, mode="swap", max_seqs=4),
        *("add a 2 1 0 0", "add b 16 1 0 0", "add c 2 2 0 0", "schedule 2", NEXT),
        *("abort b", "fork a 0", "fork a 0", NEXT),
    ),
    History.read(  # c comes back and fills the step: b has been forked while c and d were away
        sizes(4, 7, 8, mode="swap", max_seqs=4),
        *("add a 16 1 0 0", "add b 2 1 0 0", "add c 2 1 0 0", "add d 2 1 0 0", NEXT, NEXT),
        *("fork b 0", "fork b 0", "abort a", NEXT),
    ),
    History.read(  # and so it does here as one sequence that is going to be two
        sizes(4, 7, 8, mode="swap", max_seqs=5),
        *("add a 16 1 0 0", "add b 2 1 0 0", "add c 2 2 0 0", "add d 2 1 0 0", "schedule 2", NEXT),
        *("fork b 0", "fork b 0", "abort a", NEXT),
    ),
    History.read(  # of the two sequences of b one has ended
        sizes(4, 3, 1, mode="swap"), "add a 7 3 0 0", "add b 2 2 0 0", NEXT, "end b 0", NEXT, NEXT
    ),
    History.read(  # so it has here, and there is room for one beside a
        sizes(4, 6, 8, mode="swap", max_seqs=3),
        *("add a 2 1 0 0", "add b 2 2 0 0", NEXT, "end b 0", "add c 15 1 0 1", NEXT, NEXT),
        *("abort c", "fork a 0", NEXT),
    ),
)


class _SwappedWorld(SchedulerWorld):
    exercise_id = "08-swapped"
    phase = 3
    examples = EXAMPLES
    thoughts = (
        ("no-slot", _NoSlot),
        ("ignored-keeps-cpu-blocks", _IgnoredKeepsCpuBlocks),
        ("never-is-later", _SwappedNeverIsLater),
        ("later-is-never", _SwappedLaterIsNever),
        ("overtaking", _SwappedOvertakes),
        ("length-charged", _BackLengthCharged),
        ("length-charged", _BackLengthSaid),
        ("one-token-for-all", _BackOneToken),
        ("one-token-for-all", _BackCountedTooLate),
        ("nothing-charged", _BackNothingCharged),
        ("nothing-charged", _BackSeqsNotCharged),
        ("one-sequence-charged", _BackSeqsThatAreThere),
        ("one-sequence-charged", _BackThereCharged),
        ("one-sequence-charged", _BackOneSeqCharged),
        ("finished-counted", _BackFinishedCharged),
        ("finished-counted", _BackAllCharged),
        ("finished-counted", _BackFinishedRun),
        ("copy-overwritten", _CopiesNotLookedAt),
        ("copy-overwritten", _CopiesLookedAtOnce),
        ("copy-overwritten", _CopiesLookedAtLast),
        ("waits-before-never", _CopiesBeforeNever),
        ("waits-before-never", _BudgetBeforeNever),
        ("stays-swapped", _StaysSwapped),
        ("newest-first", _NewestComesBack),
        ("one-at-a-time", _OneComesBack),
        ("pairs-overwritten", _LastMovedIn),
    )


def swapping_sizes(rng: random.Random) -> Setup:
    """As `random_sizes`, in a world in which requests go to the CPU and come back."""
    mode = MODES.index(rng.choice((None, "swap", "swap"))) + 1
    sizes_of_pools = {"num_gpu_blocks": rng.randint(3, 8), "num_cpu_blocks + 1": rng.choice((3, 11, 11))}
    return random_sizes(rng) | sizes_of_pools | {"mode + 1": mode, "percent + 1": rng.choice((1, 1, 26))}


STEP = step_of(
    "08-swapped",
    "who comes back",
    _SwappedWorld,
    {
        "no-slot": "Who comes back runs in this very step, and its newest token has no slot yet: append the slots "
        "as soon as the blocks are back.",
        "ignored-keeps-cpu-blocks": "A request that never comes back must not keep its place on the CPU: end it "
        "with `_ignore`, which frees its blocks wherever they lie.",
        "never-is-later": "Who has been running once may still never come back, because it has grown: end it on "
        "NEVER, or it blocks every prompt behind it for ever.",
        "later-is-never": "LATER means that others hold the blocks now: the request stays swapped out, and only "
        "NEVER ends it.",
        "overtaking": "Nobody overtakes here either: the first that has to wait ends the phase, or a large request "
        "would stay on the CPU as long as small ones come back.",
        "length-charged": "What was swapped out was computed before, and comes back computed: it is charged one "
        "token for each SWAPPED sequence, as a decode is.",
        "one-token-for-all": "Each SWAPPED sequence goes on with a token of its own, so the step is charged as "
        "many tokens as there are of them: count them before their status changes.",
        "nothing-charged": "Who comes back computes in this step, so it is charged: add its tokens and its "
        "sequences to the budget.",
        "one-sequence-charged": "Who comes back is charged the sequences that may run of it, which "
        "`get_max_num_running_seqs()` knows: a prompt that was swapped out before its fork is to be several.",
        "finished-counted": "What has ended of a request does not come back with it: only its SWAPPED sequences are "
        "charged, RUNNING from now on, and given their slots.",
        "copy-overwritten": "Swaps are carried out before copies: ask `_copies_read_free_blocks` before each "
        "request that comes back, or it may be given a block that a copy is still to read.",
        "waits-before-never": "Who can never come back is ended whatever else happens in this step: ask for NEVER "
        "before anything that makes a request wait, the budget and the copies included.",
        "stays-swapped": "Once its blocks are back a sequence is RUNNING: `_append_slots` and the worker look for "
        "that status, and pass over it otherwise.",
        "newest-first": "The oldest comes back first: sort by `arrival_time`, and take from the head.",
        "one-at-a-time": "As many come back in a step as there is room for: go on with the new head of the queue "
        "until one has to wait.",
        "pairs-overwritten": "Several requests may come back in one step: extend the pairs in the outputs, since "
        "what you overwrite is never copied to the GPU.",
    },
    swapping_sizes,
)
