"""08-preempt: how a request makes room.

By being computed again or by going to the CPU; who cannot be saved is aborted and reported.
"""

from __future__ import annotations

from refimpl.checks.manager_account import Pair
from refimpl.checks.scheduler_account import (
    ABORTED,
    PREEMPTION,
    RUNNING,
    SWAPPED,
    WAITING,
    Refused,
    Request,
    SchedulerAccount,
)
from refimpl.checks.scheduler_world import NEXT, SchedulerWorld, sizes, step_of
from refimpl.checks.step import History
from refimpl.sequence import SequenceStatus


class _RecomputeKeepsBlocks(SchedulerAccount):
    def recompute(self, request: Request) -> None:
        (member,) = request.unfinished
        member.status, member.computed = WAITING, 0
        self.now.recomputed.append(request)


class _OutputDropped(SchedulerAccount):
    def recompute(self, request: Request) -> None:
        (member,) = request.unfinished
        super().recompute(request)
        del member.tokens[member.prompt_len :]


class _ComputedKept(SchedulerAccount):
    def recompute(self, request: Request) -> None:
        (member,) = request.unfinished
        computed = member.computed
        super().recompute(request)
        member.computed = computed


class _SeveralRecomputed(SchedulerAccount):
    def recomputes(self, request: Request) -> bool:
        return self.limits.mode != "swap"

    def recompute(self, request: Request) -> None:
        for member in request.unfinished:
            member.status, member.computed = WAITING, 0
            self.blocks.let_go(member.seq_id)
        self.now.recomputed.append(request)


class _SeveralRefused(_SeveralRecomputed):
    def recompute(self, request: Request) -> None:
        if len(request.unfinished) > 1:
            raise Refused("ValueError")
        super().recompute(request)


class _SeveralRecomputedIfTold(_SeveralRecomputed):
    def recomputes(self, request: Request) -> bool:
        return self.limits.mode == "recompute" or SchedulerAccount.recomputes(self, request)


class _SeveralRefusedIfTold(_SeveralRefused):
    def recomputes(self, request: Request) -> bool:
        return self.limits.mode == "recompute" or SchedulerAccount.recomputes(self, request)


class _FinishedCounted(SchedulerAccount):
    def recomputes(self, request: Request) -> bool:
        return len(request.members) == 1 and super().recomputes(request)


class _ModeIgnored(SchedulerAccount):
    def recomputes(self, request: Request) -> bool:
        return len(request.unfinished) == 1


class _ModeIgnoredForMost(SchedulerAccount):
    def recomputes(self, request: Request) -> bool:
        return request.most == 1


class _UnforkedIsOne(SchedulerAccount):
    def recomputes(self, request: Request) -> bool:
        return len(request.unfinished) == 1 and self.limits.mode != "swap"


class _StaysRunning(SchedulerAccount):
    def set_status(self, request: Request, before: SequenceStatus, after: SequenceStatus) -> None:
        if before is not RUNNING:
            super().set_status(request, before, after)


class _StatusFirst(SchedulerAccount):
    """The block manager then finds nothing to move."""

    def move_out(self, request: Request) -> None:
        self.set_status(request, RUNNING, SWAPPED)
        super().move_out(request)


class _FallsBack(SchedulerAccount):
    def no_room_on_cpu(self, request: Request) -> None:
        for member in request.unfinished:
            member.status, member.computed = WAITING, 0
            self.blocks.let_go(member.seq_id)
        self.now.recomputed.append(request)
        self.count(request)


class _AbortCounted(SchedulerAccount):
    def no_room_on_cpu(self, request: Request) -> None:
        super().no_room_on_cpu(request)
        self.count(request)


class _AbortKeepsBlocks(SchedulerAccount):
    def no_room_on_cpu(self, request: Request) -> None:
        for member in request.unfinished:
            member.status = ABORTED
        self.now.aborted.append(request)


class _AbortOnlyReported(SchedulerAccount):
    def no_room_on_cpu(self, request: Request) -> None:
        self.now.aborted.append(request)


class _AbortNotReported(SchedulerAccount):
    def no_room_on_cpu(self, request: Request) -> None:
        self.end(request, ABORTED)


class _LastAbortReported(SchedulerAccount):
    def no_room_on_cpu(self, request: Request) -> None:
        self.end(request, ABORTED)
        self.now.aborted = [request]


class _NotCounted(SchedulerAccount):
    def count(self, request: Request) -> None:
        pass


class _FinishedRevived(SchedulerAccount):
    def recompute(self, request: Request) -> None:
        super().recompute(request)
        for member in request.members:
            member.status, member.computed = WAITING, 0


class _LastMovedOut(SchedulerAccount):
    def note_moved_out(self, pairs: list[Pair]) -> None:
        self.now.moved_out = list(pairs)


class _NotRemembered(SchedulerAccount):
    def put_back(self) -> None:
        pass


EXAMPLES = (
    History.read(sizes(4, 4), "add a 8 1 0 0", "add b 8 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 4, 8), "add a 8 1 0 0", "add b 7 2 0 0", NEXT, NEXT),
    History.read(sizes(4, 4, 8, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 4, 8, mode="recompute"), "add a 8 1 0 0", "add b 7 2 0 0", NEXT, NEXT),
    History.read(sizes(4, 4, 8, mode="recompute"), "add a 8 1 0 0", "add b 8 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 4, 8), "add a 8 1 0 0", "add b 8 3 0 0", "schedule 2", NEXT),
    History.read(sizes(4, 4, 8, mode="recompute"), "add a 8 1 0 0", "add b 8 2 0 0", "schedule 2", NEXT),
    History.read(sizes(4, 4), "add a 7 2 0 0", NEXT, NEXT),
    History.read(sizes(4, 4, mode="swap"), "add a 16 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 2, 4), "add a 8 2 0 0", NEXT, "end a 0", NEXT),
    History.read(sizes(4, 2, 4, mode="recompute"), "add a 8 2 0 0", NEXT, "end a 0", NEXT),
    History.read(sizes(4, 3, 4), "add a 4 2 0 0", "add b 4 2 0 0", "add c 4 2 0 0", NEXT, NEXT),
    History.read(sizes(4, 2), "add a 4 2 0 0", "add b 4 2 0 0", NEXT, NEXT),
    History.read(sizes(4, 4), "add a 8 1 0 0", "add b 8 2 0 0", "schedule 2", NEXT),
    History.read(sizes(2, 3, 5), "add a 2 2 0 0", "add b 4 2 0 0", NEXT, NEXT, NEXT),  # a goes when b is away
)


class _PreemptWorld(SchedulerWorld):
    exercise_id = "08-preempt"
    phase = PREEMPTION
    examples = EXAMPLES
    thoughts = (
        ("blocks-kept", _RecomputeKeepsBlocks),
        ("output-dropped", _OutputDropped),
        ("still-counted-as-computed", _ComputedKept),
        ("several-recomputed", _SeveralRecomputed),
        ("several-recomputed", _SeveralRefused),
        ("several-recomputed", _SeveralRecomputedIfTold),
        ("several-recomputed", _SeveralRefusedIfTold),
        ("finished-counted", _FinishedCounted),
        ("finished-revived", _FinishedRevived),
        ("mode-ignored", _ModeIgnored),
        ("mode-ignored", _ModeIgnoredForMost),
        ("unforked-prompt-is-one", _UnforkedIsOne),
        ("status-not-changed", _StaysRunning),
        ("status-before-blocks", _StatusFirst),
        ("recomputed-for-want-of-room", _FallsBack),
        ("abort-counted", _AbortCounted),
        ("aborted-keeps-blocks", _AbortKeepsBlocks),
        ("aborted-keeps-blocks", _AbortOnlyReported),
        ("abort-not-reported", _AbortNotReported),
        ("abort-not-reported", _LastAbortReported),
        ("not-counted", _NotCounted),
        ("pairs-overwritten", _LastMovedOut),
        ("not-handed-back", _NotRemembered),
    )


STEP = step_of(
    "08-preempt",
    "how a request makes room",
    _PreemptWorld,
    {
        "blocks-kept": "Room is made by letting go of blocks: a sequence that will be recomputed needs none of "
        "its own, so free them.",
        "output-dropped": "To recompute is to compute again what is known, and the output is known: the keys and "
        "values go, every token stays.",
        "still-counted-as-computed": "With its blocks the keys and values of all its tokens are gone: call "
        "`reset_state_for_recompute()`, or the worker computes only what comes after them.",
        "several-recomputed": "Several unfinished sequences are no longer one prompt, so they cannot be computed "
        "again as one: they are swapped, whatever the configuration asks for.",
        "finished-counted": "Sequences that have ended do not come back, so they do not count: with one unfinished "
        "sequence a request is recomputed, however many there were.",
        "finished-revived": "What has ended stays as it ended: only the unfinished sequence is to be WAITING again.",
        "mode-ignored": "The configuration goes first: with `preemption_mode` set to swap a single sequence is "
        "swapped, too, and the rule of one or several is for None.",
        "unforked-prompt-is-one": "A prompt that is to be forked counts as what it is going to be: unless the "
        "configuration says recompute, a group of which several may run is swapped.",
        "status-not-changed": "Once its blocks have moved, a sequence is SWAPPED: by this status it is counted and "
        "found when it comes back.",
        "status-before-blocks": "`swap_out` moves the blocks of RUNNING sequences, so it comes before the change "
        "of status: who is SWAPPED already is not looked at, and keeps its blocks on the GPU.",
        "recomputed-for-want-of-room": "A request that is to be swapped and finds no room on the CPU cannot be "
        "saved: it is aborted and reported, and everybody else runs on.",
        "abort-counted": "`preempted` counts requests that made room and will go on: one that was aborted will "
        "not, and the list in the outputs tells of it.",
        "aborted-keeps-blocks": "Neither a report nor a status frees a block, and `abort_seq_group` looks into the "
        "queues, where who makes room is not: end the request with `_end`, or its blocks are lost to everybody.",
        "abort-not-reported": "Whoever sent the request waits for an answer: put it into `aborted_seq_groups`, or "
        "nobody ever tells them that it has ended.",
        "not-counted": "Count who has made room in `outputs.preempted`: by it the next phase knows that this is no "
        "moment to bring anybody back.",
        "pairs-overwritten": "Several requests may be swapped out in one step: extend the pairs in the outputs, "
        "since what you overwrite is never copied to the CPU.",
        "not-handed-back": "A victim has left the running queue, so it must be put somewhere: append it to "
        "`recomputed`, from which it goes to the front of `waiting`.",
    },
)
