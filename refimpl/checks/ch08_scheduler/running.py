"""08-running: a slot for everybody who runs.

Blocks go to the oldest first, and the newest makes room for them.
"""

from __future__ import annotations

from refimpl.block import Device
from refimpl.checks.manager_account import Pair
from refimpl.checks.scheduler_account import RUNNING, Member, Request, SchedulerAccount
from refimpl.checks.scheduler_world import NEXT, SchedulerWorld, sizes, step_of
from refimpl.checks.step import History


class _OldestMakesRoom(SchedulerAccount):
    def take_victim(self, request: Request, queue: list[Request]) -> Request:
        return queue.pop(0) if queue else request


class _ItselfMakesRoom(SchedulerAccount):
    def take_victim(self, request: Request, queue: list[Request]) -> Request:
        return request


class _SingleMakesRoom(SchedulerAccount):
    def take_victim(self, request: Request, queue: list[Request]) -> Request:
        single = [other for other in queue if len(other.unfinished) == 1]
        victim = (single or queue or [request])[-1]
        if victim in queue:
            queue.remove(victim)
        return victim


class _ToTheBack(SchedulerAccount):
    def put_back(self) -> None:
        self.waiting += sorted(self.now.recomputed, key=lambda request: request.arrival)


class _ToTheBackAsTheyCame(SchedulerAccount):
    def put_back(self) -> None:
        self.waiting += self.now.recomputed


class _Reversed(SchedulerAccount):
    def put_back(self) -> None:
        self.waiting[:0] = sorted(self.now.recomputed, key=lambda request: -request.arrival)


class _AloneStays(SchedulerAccount):
    def make_room(self, request: Request, queue: list[Request]) -> bool:
        while not self.can_grow(request):
            if not queue:
                self.running.append(request)
                return False
            self.preempt(queue.pop())
        return True


class _AloneGoesOn(SchedulerAccount):
    def make_room(self, request: Request, queue: list[Request]) -> bool:
        while queue and not self.can_grow(request):
            self.preempt(queue.pop())
        return True


class _OneVictim(SchedulerAccount):
    def make_room(self, request: Request, queue: list[Request]) -> bool:
        if self.can_grow(request):
            return True
        victim = self.take_victim(request, queue)
        self.preempt(victim)
        return victim is not request


class _Pauses(SchedulerAccount):
    def make_room(self, request: Request, queue: list[Request]) -> bool:
        if not self.can_grow(request):
            self.running.append(request)
            return False
        return True


class _NeedLookedAt(SchedulerAccount):
    def can_grow(self, request: Request) -> bool:
        needed = sum(self.needs_block(member) for member in request.of(RUNNING))
        return needed <= self.blocks.free(Device.GPU)

    def needs_block(self, member: Member) -> bool:
        return self.blocks.required(len(member.tokens)) > len(self.blocks.tables[member.seq_id])


class _NeedAndSharingLookedAt(_NeedLookedAt):
    def needs_block(self, member: Member) -> bool:
        shared = self.blocks.owners(self.blocks.tables[member.seq_id][-1]) > 1
        return shared or super().needs_block(member)


class _LengthCharged(SchedulerAccount):
    def decode_tokens(self, request: Request) -> int:
        return sum(len(member.tokens) for member in request.of(RUNNING))


class _LengthSaid(_LengthCharged):
    def decode_chunk(self, request: Request) -> int:
        return len(request.of(RUNNING)[0].tokens)


class _LengthOfAllSaid(_LengthCharged):
    def decode_chunk(self, request: Request) -> int:
        return self.decode_tokens(request)


class _OneTokenForAll(SchedulerAccount):
    def decode_tokens(self, request: Request) -> int:
        return 1


class _SequencesChargedAgain(SchedulerAccount):
    def decode_seqs(self, request: Request) -> int:
        return len(request.of(RUNNING))


class _RequestsChargedAgain(SchedulerAccount):
    def decode_seqs(self, request: Request) -> int:
        return request.most


class _FirstGrows(SchedulerAccount):
    def growing(self, request: Request) -> list[Member]:
        return request.of(RUNNING)[:1]


class _LastCopies(SchedulerAccount):
    def note_copies(self, pairs: list[Pair]) -> None:
        self.now.copied, self.now.taken_by_then = list(pairs), [self.blocks.num_taken] * len(pairs)


class _LastGroupsCopies(SchedulerAccount):
    def append_slots(self, request: Request) -> None:
        self.now.copied, self.now.taken_by_then = [], []
        super().append_slots(request)


class _QueueOrder(SchedulerAccount):
    def decode_order(self) -> list[Request]:
        return list(self.running)


class _NewestGrowsFirst(SchedulerAccount):
    def decode_order(self) -> list[Request]:
        return super().decode_order()[::-1]


EXAMPLES = (
    History.read(sizes(4, 4), "add a 8 1 0 0", "add b 8 1 0 0", "add c 1 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 3), "add a 4 1 0 0", "add b 4 1 0 0", "add c 4 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 3), "add a 4 2 0 0", "add b 4 1 0 0", "add c 4 1 0 0", NEXT, "add d 1 1 0 0", NEXT),
    History.read(sizes(4, 4), "add a 4 1 0 0", "add b 4 1 0 0", "add c 8 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 4, 8), "add a 4 1 0 0", "add b 4 1 0 0", "add c 8 2 0 0", NEXT, NEXT),
    History.read(sizes(4, 4), "add a 16 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 8), "add a 4 2 0 0", NEXT, NEXT),
    History.read(sizes(4, 8), "add a 5 3 0 0", NEXT, NEXT),
    History.read(sizes(4, 9), "add a 5 2 0 0", "add b 5 2 0 0", NEXT, NEXT),
    History.read(sizes(4, 8), "add a 5 1 0 0", "add b 2 1 0 1", NEXT, NEXT),
    History.read(sizes(4, 2), "add a 3 1 0 0", "add b 3 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 2), "add a 5 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 3), "add a 5 2 0 0", NEXT, NEXT),
    History.read(  # c comes back beside a, and the step is full with it
        sizes(4, 6, 8, mode="swap", max_seqs=4),
        *("add a 2 2 0 0", "add b 16 1 0 0", "add c 2 1 0 0", NEXT, NEXT, "abort b", "fork a 0", NEXT),
    ),
    History.read(  # and here it is full without c
        sizes(4, 6, 8, mode="swap", max_seqs=4),
        *("add a 2 2 0 0", "add b 16 1 0 0", "add c 2 1 0 0", NEXT, NEXT, "abort b", "fork a 0", "fork a 0", NEXT),
    ),
)


class _RunningWorld(SchedulerWorld):
    exercise_id = "08-running"
    phase = 2
    examples = EXAMPLES
    thoughts = (
        ("oldest-makes-room", _OldestMakesRoom),
        ("oldest-makes-room", _SingleMakesRoom),
        ("makes-room-for-itself", _ItselfMakesRoom),
        ("to-the-back", _ToTheBack),
        ("to-the-back", _ToTheBackAsTheyCame),
        ("order-of-victims-reversed", _Reversed),
        ("alone-stays", _AloneStays),
        ("alone-stays", _AloneGoesOn),
        ("one-victim-is-enough", _OneVictim),
        ("pauses-instead", _Pauses),
        ("need-looked-at", _NeedLookedAt),
        ("need-looked-at", _NeedAndSharingLookedAt),
        ("length-charged", _LengthCharged),
        ("length-charged", _LengthSaid),
        ("length-charged", _LengthOfAllSaid),
        ("one-token-for-all", _OneTokenForAll),
        ("charged-twice", _SequencesChargedAgain),
        ("charged-twice", _RequestsChargedAgain),
        ("first-sequence-only", _FirstGrows),
        ("copies-overwritten", _LastCopies),
        ("copies-overwritten", _LastGroupsCopies),
        ("order-of-arrival-ignored", _QueueOrder),
        ("order-of-arrival-ignored", _NewestGrowsFirst),
    )


STEP = step_of(
    "08-running",
    "a slot for everybody who runs",
    _RunningWorld,
    {
        "oldest-makes-room": "The newest makes room, the last of `queue`: it has the least to lose, and the oldest "
        "must get on or nobody would ever be sure to finish.",
        "makes-room-for-itself": "As long as somebody newer runs, that one makes room and not the request whose "
        "turn it is: it gives way itself only when it is the last of the queue.",
        "to-the-back": "A victim goes to the front of `waiting`: it came before everybody who is there, and at the "
        "back a busy server would never let it in again.",
        "order-of-victims-reversed": "Several victims keep their order of arrival: `extendleft` and `appendleft` "
        "put each one in front of the last, so hand them over newest first.",
        "alone-stays": "When nobody else is left to make room, the request has to do it itself: without a slot it "
        "cannot run, and what it waits for cannot come, since it holds the blocks.",
        "one-victim-is-enough": "One victim may be too small: ask again after each one, until there is room or the "
        "request itself has gone.",
        "pauses-instead": "Who keeps its blocks makes no room: if every request that finds no block paused, all "
        "would pause, so the newest gives its blocks up.",
        "need-looked-at": "Whether a new block is really needed is not looked at: `can_append_slots` asks for one "
        "free block for each RUNNING sequence, and when it says no, somebody has to make room.",
        "length-charged": "A decode computes one token for each RUNNING sequence, whatever its length: the tokens "
        "before it lie in the cache.",
        "one-token-for-all": "Each RUNNING sequence of a request computes a token of its own, so the step is "
        "charged as many tokens as there are RUNNING sequences.",
        "charged-twice": "Running sequences have taken their part of `max_num_seqs` before the step began: a "
        "decode is charged its tokens, and no sequence a second time.",
        "first-sequence-only": "Every RUNNING sequence of a request has a newest token, and each needs a slot for "
        "it: call `append_slots` for all of them.",
        "copies-overwritten": "Each call of `append_slots` may have something to copy: extend the list in the "
        "outputs, since what you overwrite is never copied, and its sequence reads an empty block.",
        "order-of-arrival-ignored": "Blocks go to the oldest first: sort the running requests by `arrival_time`, "
        "since one that came back stands behind newer ones.",
    },
)
