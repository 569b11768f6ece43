"""What must come of each step of a scheduler: three lists of requests over an account of who holds which block.

Nothing is shared with the reference but the enums. A step is cut into small decisions, so that a class which differs in
one of them tells what a learner with one wrong thought would do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from refimpl.block import Device
from refimpl.block_manager import AllocStatus
from refimpl.checks.manager_account import Account, Block, Pair, Tokens
from refimpl.sequence import SequenceStatus

WAITING, RUNNING, SWAPPED = SequenceStatus.WAITING, SequenceStatus.RUNNING, SequenceStatus.SWAPPED
IGNORED, ABORTED, STOPPED = (
    SequenceStatus.FINISHED_IGNORED,
    SequenceStatus.FINISHED_ABORTED,
    SequenceStatus.FINISHED_STOPPED,
)

PREEMPTION = 4  # beside the phases 1 to 3

View = dict[str, Any]  # everything that is to be seen after a step, by what it is


class Unsure(Exception):
    """The account cannot tell what happens next: it depends on what a prefix cache still keeps of free blocks."""


class Refused(Exception):
    """An error would be raised here; `args` holds its type's name."""


class Blocks(Account):
    """As `Account`, and a block stays the same object for as long as it is the same memory."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.num_taken = 0  # blocks that came out of the free ones
        self._given_back: set[Tokens] = set()  # what a free block may still stand for

    def append(self, seq_id: int, tokens: Tokens) -> list[Pair] | None:
        """As `Account`: but a block that is written in place and not exchanged stays what it is."""
        table = self.tables[seq_id]
        last, full = table[-1], self.caching and len(tokens) % self.block_size == 0
        in_place = self.required(len(tokens)) == len(table) and self.owners(last) == 1
        if not (in_place and full) or self._live(last.device, tokens) is not None:
            return super().append(seq_id, tokens)
        if tokens in self._given_back:
            raise Unsure
        last.content = tokens
        return []

    def let_go(self, seq_id: int) -> None:
        """As `Account`; what the blocks stand for may be remembered."""
        self._given_back |= {block.content for block in self.tables.get(seq_id, []) if block.content}
        super().let_go(seq_id)

    def swap(self, seq_ids: list[int], device: Device) -> list[Pair] | None:
        """As `Account`; what the blocks stand for may be remembered where they were."""
        self._given_back |= {block.content for block in self.distinct(seq_ids) if block.content}
        return super().swap(seq_ids, device)

    def _take(self, device: Device, content: Tokens | None) -> Block:
        self.num_taken += self._live(device, content) is None
        return super()._take(device, content)


@dataclass(slots=True)
class Member:
    """One sequence, its tokens and its status."""

    seq_id: int
    tokens: list[int]
    prompt_len: int  # of its tokens
    status: SequenceStatus = WAITING
    computed: int = 0  # of its tokens

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it."""
        return self.status not in (WAITING, RUNNING, SWAPPED)


@dataclass(slots=True, eq=False)
class Request:
    """One request, by its `name`: `wanted` sequences are to come of its prompt, and `members` are there."""

    name: str
    arrival: int  # the oldest has the least
    wanted: int
    members: list[Member]

    def of(self, status: SequenceStatus) -> list[Member]:
        """Its sequences of this status."""
        return [member for member in self.members if member.status is status]

    @property
    def unfinished(self) -> list[Member]:
        """Its sequences that have not ended."""
        return [member for member in self.members if not member.has_ended]

    @property
    def most(self) -> int:
        """How many of its sequences may run at once from now on."""
        return self.wanted if len(self.members) < self.wanted else len(self.unfinished)


@dataclass(slots=True)
class Limits:
    """Of one step, in tokens and `max_seqs`, and of one sequence; `mode` is "recompute", "swap" or None."""

    max_model_len: int
    max_tokens: int
    max_seqs: int
    mode: str | None


@dataclass(slots=True)
class Outcome:
    """What a step has decided; `phases` are the ones that were entered: 1, 2, 3, and PREEMPTION."""

    scheduled: list[tuple[Request, int]] = field(default_factory=list)
    num_prompts: int = 0  # of those scheduled
    num_tokens: int = 0  # charged so far
    num_seqs: int = 0  # charged so far
    ignored: list[Request] = field(default_factory=list)
    aborted: list[Request] = field(default_factory=list)
    recomputed: list[Request] = field(default_factory=list)
    swapped_out: list[Request] = field(default_factory=list)
    swapped_in: list[Request] = field(default_factory=list)
    preempted: int = 0  # who made room and goes on
    moved_in: list[Pair] = field(default_factory=list)  # from the CPU
    moved_out: list[Pair] = field(default_factory=list)  # to the CPU
    copied: list[Pair] = field(default_factory=list)  # on the GPU
    taken_by_then: list[int] = field(default_factory=list)  # blocks taken so far, for each copy
    phases: list[int] = field(default_factory=list)


class SchedulerAccount:
    """The three queues, oldest or head first, and what becomes of them within `limits`.

    A request is told by its `name`; `num_tokens` and `num_seqs` are what it is charged.
    """

    def __init__(self, limits: Limits, blocks: Blocks) -> None:
        self.limits, self.blocks = limits, blocks
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.swapped: list[Request] = []
        self.now = Outcome()
        self.hits: dict[str, int] = {}  # request -> tokens that a prefix cache held of its prompt, where that is known

    # What happens between steps.

    def add(self, name: str, arrival: int, wanted: int, seq_ids: list[int], tokens: list[int]) -> None:
        """A request comes, with the tokens of its prompt, of which `wanted` sequences are to come.

        `arrival` is its place in the order of age, `seq_ids` are the sequences that it brings.
        """
        members = [Member(seq_id, list(tokens), len(tokens)) for seq_id in seq_ids]
        self.requests[name] = Request(name, arrival, wanted, members)
        self.waiting.append(self.requests[name])

    def generate(self, name: str, i: int, token: int) -> None:
        """All tokens of a sequence are computed, and one more is known."""
        member = self.requests[name].members[i]
        member.computed = len(member.tokens)
        member.tokens.append(token)

    def fork(self, name: str, i: int, seq_id: int) -> None:
        """A sequence gets a sibling that goes on from the same tokens."""
        request = self.requests[name]
        parent = request.members[i]
        sibling = Member(seq_id, list(parent.tokens), parent.prompt_len, parent.status, parent.computed)
        request.members.append(sibling)
        self.blocks.fork(parent.seq_id, seq_id)

    def finish(self, name: str, i: int) -> None:
        """A sequence has all its tokens."""
        member = self.requests[name].members[i]
        member.status = STOPPED
        self.blocks.let_go(member.seq_id)
        self.running = [request for request in self.running if request.unfinished]

    def abort(self, name: str) -> None:
        """The client has gone."""
        request = self.requests[name]
        for queue in (self.waiting, self.running, self.swapped):
            if request in queue:
                queue.remove(request)
                self.end(request, ABORTED)

    # One step.

    def step(self) -> None:
        """Decide it; `now` holds what was decided."""
        self.now = Outcome()
        self.now.num_seqs = self.running_seqs()
        self.all_phases()

    def running_seqs(self) -> int:
        """What the running requests take of the step before it begins."""
        return sum(request.most for request in self.running)

    def all_phases(self) -> None:
        """Prompts; decodes if there was no prompt; the swapped if nobody had to make room."""
        if self.lets_in():
            self.prefill()
        if not self.now.scheduled:
            self.decode()
            if self.brings_back():
                self.come_back()

    def lets_in(self) -> bool:
        """Whether prompts may come in."""
        return not self.swapped

    def brings_back(self) -> bool:
        """Whether anybody may come back behind the decodes."""
        return not (self.now.preempted or self.now.aborted)

    def charge(self, num_tokens: int, num_seqs: int) -> None:
        """So much of the step is taken."""
        self.now.num_tokens += num_tokens
        self.now.num_seqs += num_seqs

    def fits(self, num_tokens: int, num_seqs: int) -> bool:
        """Whether the step has room for so much more."""
        tokens, seqs = self.now.num_tokens + num_tokens, self.now.num_seqs + num_seqs
        return tokens <= self.limits.max_tokens and seqs <= self.limits.max_seqs

    def set_status(self, request: Request, before: SequenceStatus, after: SequenceStatus) -> None:
        """Its sequences have gone from one queue to another: those with the status `before` have the one `after`."""
        for member in request.of(before):
            member.status = after

    def end(self, request: Request, status: SequenceStatus) -> None:
        """Nothing more comes of it: it gets this status, and holds nothing any more."""
        for member in request.unfinished:
            member.status = status
            self.blocks.let_go(member.seq_id)

    # Phase 1.

    def prefill(self) -> None:
        """Head first, up to the first that has to wait."""
        self.now.phases.append(1)
        for request in self.in_turn(self.waiting):
            answer = self.answer_to_prompt(request)
            if answer is AllocStatus.NEVER:
                self.ignore(request, self.waiting)
            elif answer is AllocStatus.OK and self.prompt_fits(request):
                self.admit(request)
            elif self.stops_at(request, answer):
                break
        self.now.num_prompts = self.num_prompts()

    def in_turn(self, queue: list[Request]) -> Iterable[Request]:
        """In which order a queue is gone through."""
        return list(queue)

    def stops_at(self, request: Request, answer: AllocStatus) -> bool:
        """Whether one that has to wait, after this answer, holds up those behind it."""
        return True

    def prompt_len(self, request: Request) -> int:
        """Tokens that a prefill of it computes."""
        return len(request.unfinished[0].tokens)

    def prompt_fits(self, request: Request) -> bool:
        """Whether the step has room for the prompt."""
        return self.fits(self.prompt_len(request), self.prompt_seqs(request))

    def prompt_seqs(self, request: Request) -> int:
        """Sequences that a prompt is charged."""
        return request.most

    def answer_to_prompt(self, request: Request) -> AllocStatus:
        """Whether it may come in, as far as lengths and memory go."""
        num_tokens = len(request.of(WAITING)[0].tokens)
        if num_tokens > min(self.limits.max_model_len, self.limits.max_tokens):
            return AllocStatus.NEVER
        return self.blocks.answer(self.blocks.required(num_tokens))

    def ignore(self, request: Request, queue: list[Request]) -> None:
        """It can never run."""
        queue.remove(request)
        self.end(request, IGNORED)
        self.now.ignored.append(request)

    def admit(self, request: Request) -> None:
        """It gets its blocks and computes its prompt in this step. Refused where there are too few."""
        num_seqs = self.prompt_seqs(request)
        waiting = request.of(WAITING)
        if self.blocks.allocate([member.seq_id for member in waiting], tuple(waiting[0].tokens)) is None:
            raise Refused("ValueError")
        self.waiting.remove(request)
        self.set_status(request, WAITING, RUNNING)
        self.running.append(request)
        num_tokens, chunk = self.prompt_charge(request)
        self.charge(num_tokens, num_seqs)
        self.now.scheduled.append((request, chunk))

    def prompt_charge(self, request: Request) -> tuple[int, int]:
        """Tokens that a prompt is charged, and what it says of itself."""
        return self.prompt_len(request), self.prompt_len(request)

    def num_prompts(self) -> int:
        """How many of those that run are prompts."""
        return len(self.now.scheduled)

    # Phase 2.

    def decode(self) -> None:
        """A slot for every running sequence, oldest request first."""
        self.now.phases.append(2)
        queue, self.running = self.decode_order(), []
        while queue:
            request = queue.pop(0)
            if self.make_room(request, queue):
                self.append_slots(request)
                self.running.append(request)
                self.charge(self.decode_tokens(request), self.decode_seqs(request))
                self.now.scheduled.append((request, self.decode_chunk(request)))
        self.put_back()

    def decode_order(self) -> list[Request]:
        """Who has the first claim to a block."""
        return sorted(self.running, key=lambda request: request.arrival)

    def decode_tokens(self, request: Request) -> int:
        """Tokens that a decode of it is charged."""
        return len(request.of(RUNNING))

    def decode_seqs(self, request: Request) -> int:
        """Sequences that a decode of it is charged, which were charged before the step."""
        return 0

    def decode_chunk(self, request: Request) -> int:
        """What a decode says of itself."""
        return 1

    def can_grow(self, request: Request) -> bool:
        """Whether there is a block for each of its sequences, needed or not."""
        return len(request.of(RUNNING)) <= self.blocks.free(Device.GPU)

    def make_room(self, request: Request, queue: list[Request]) -> bool:
        """Until it can grow others have to go, at last it itself; whether it can."""
        while not self.can_grow(request):
            victim = self.take_victim(request, queue)
            self.preempt(victim)
            if victim is request:
                return False
        return True

    def take_victim(self, request: Request, queue: list[Request]) -> Request:
        """Who has to go: the newest."""
        return queue.pop() if queue else request

    def append_slots(self, request: Request) -> None:
        """Room for the newest token of each of its sequences. Refused where there is none."""
        for member in self.growing(request):
            pairs = self.blocks.append(member.seq_id, tuple(member.tokens))
            if pairs is None:
                raise Refused("ValueError")
            self.note_copies(pairs)

    def growing(self, request: Request) -> list[Member]:
        """Its sequences that need a slot."""
        return request.of(RUNNING)

    def note_copies(self, pairs: list[Pair]) -> None:
        """What is to be copied goes to the worker."""
        self.now.copied += pairs
        self.now.taken_by_then += [self.blocks.num_taken] * len(pairs)

    def put_back(self) -> None:
        """Who is to be recomputed goes to the front of the waiting, in order of arrival."""
        self.waiting[:0] = sorted(self.now.recomputed, key=lambda request: request.arrival)

    # Making room.

    def preempt(self, request: Request) -> None:
        """It gives up its blocks, one way or the other."""
        self.now.phases.append(PREEMPTION)
        if self.recomputes(request):
            self.recompute(request)
            self.count(request)
        elif len(self.blocks.distinct([m.seq_id for m in request.unfinished])) <= self.blocks.free(Device.CPU):
            self.move_out(request)
            self.count(request)
        else:
            self.no_room_on_cpu(request)

    def recomputes(self, request: Request) -> bool:
        """Whether it is to be computed again, as against moved to the CPU."""
        if len(request.unfinished) > 1:
            return False
        return self.limits.mode == "recompute" or (self.limits.mode is None and request.most == 1)

    def recompute(self, request: Request) -> None:
        """Its one sequence lets go of everything but its tokens."""
        (member,) = request.unfinished
        member.status = WAITING
        member.computed = 0
        self.blocks.let_go(member.seq_id)
        self.now.recomputed.append(request)

    def move_out(self, request: Request) -> None:
        """Its blocks go to the CPU."""
        pairs = self.blocks.swap([member.seq_id for member in request.of(RUNNING)], Device.CPU)
        self.note_moved_out(pairs or [])
        self.set_status(request, RUNNING, SWAPPED)
        self.swapped.append(request)
        self.now.swapped_out.append(request)

    def note_moved_out(self, pairs: list[Pair]) -> None:
        """What is to be moved goes to the worker."""
        self.now.moved_out += pairs

    def no_room_on_cpu(self, request: Request) -> None:
        """It cannot be saved."""
        self.end(request, ABORTED)
        self.now.aborted.append(request)

    def count(self, request: Request) -> None:
        """One more has made room."""
        self.now.preempted += 1

    # Phase 3.

    def come_back(self) -> None:
        """Oldest first, up to the first that has to wait."""
        self.now.phases.append(3)
        self.swapped.sort(key=lambda request: request.arrival)
        for request in self.in_turn_back(self.swapped):
            answer = self.answer_to_swapped(request)
            if answer is AllocStatus.NEVER:
                self.ignore_swapped(request)
            elif answer is AllocStatus.OK and self.has_room_back(request) and self.copies_safe():
                self.bring_back(request)
            elif self.stops_at_swapped(request):
                break

    def in_turn_back(self, queue: list[Request]) -> Iterable[Request]:
        """In which order the swapped are gone through."""
        return list(queue)

    def stops_at_swapped(self, request: Request) -> bool:
        """Whether one that has to wait holds up those behind it."""
        return True

    def answer_to_swapped(self, request: Request) -> AllocStatus:
        """Whether it may come back, as far as memory goes."""
        distinct = self.blocks.distinct([member.seq_id for member in request.unfinished])
        return self.blocks.answer(len(distinct) + len(request.of(SWAPPED)))

    def has_room_back(self, request: Request) -> bool:
        """Whether the step has room for it."""
        return self.fits(self.back_tokens(request), self.back_seqs(request))

    def back_seqs(self, request: Request) -> int:
        """Sequences that it is charged in the step in which it comes back."""
        return request.most

    def back_tokens(self, request: Request) -> int:
        """Tokens that it is charged in the step in which it comes back."""
        return len(request.of(SWAPPED))

    def copies_safe(self) -> bool:
        """Whether no copy of this step reads a block that has come free since, which a swap in might be given.

        Raises Unsure where the block may have gone out again.
        """
        copies = zip(self.now.copied, self.now.taken_by_then, strict=True)
        free = [taken for (source, _), taken in copies if not self.blocks.owners(source)]
        if any(taken != self.blocks.num_taken for taken in free):
            raise Unsure  # the block may have been handed out again
        return not free

    def ignore_swapped(self, request: Request) -> None:
        """It can never come back."""
        self.ignore(request, self.swapped)

    def bring_back(self, request: Request) -> None:
        """Its blocks come back, and it goes on at once. Refused where there are too few."""
        num_tokens, num_seqs = self.back_tokens(request), self.back_seqs(request)
        pairs = self.blocks.swap([member.seq_id for member in request.of(SWAPPED)], Device.GPU)
        if pairs is None:
            raise Refused("ValueError")
        self.swapped.remove(request)
        self.note_moved_in(pairs)
        self.set_status(request, SWAPPED, RUNNING)
        self.append_slots(request)
        self.running.append(request)
        self.now.swapped_in.append(request)
        self.charge(num_tokens, num_seqs)
        self.now.scheduled.append((request, self.back_chunk(request)))

    def note_moved_in(self, pairs: list[Pair]) -> None:
        """What is to be moved goes to the worker."""
        self.now.moved_in += pairs

    def back_chunk(self, request: Request) -> int:
        """What a return says of itself."""
        return 1

    # What is to be seen.

    def view(self) -> View:
        """Everything that a caller can see after a step, without a block number."""
        now = self.now
        members = {
            f"{request.name}.seqs[{i}]": member
            for request in self.requests.values()
            for i, member in enumerate(request.members)
        }
        return {
            "scheduled": _names(request for request, _ in now.scheduled),
            "num_prefill_groups": now.num_prompts,
            "chunks": [chunk for _, chunk in now.scheduled],
            "num_batched_tokens": now.num_tokens,
            "ignored": _names(now.ignored),
            "aborted": _names(now.aborted),
            "waiting": _names(self.waiting),
            "running": _names(self.running),
            "swapped": sorted(_names(self.swapped)),
            "statuses": {label: member.status for label, member in members.items()},
            "lengths": {label: len(member.tokens) for label, member in members.items()},
            "computed": {label: member.computed for label, member in members.items() if not member.has_ended},
            "blocks": {label: self._held(member) for label, member in members.items()},
            "free": {device.name: self.blocks.free(device) for device in Device},
            "num_swapped_in": len(now.moved_in),
            "num_swapped_out": len(now.moved_out),
            "num_copied": len(now.copied),
            "preempted": now.preempted,
        }

    def _held(self, member: Member) -> tuple[int, str]:
        table = self.blocks.tables.get(member.seq_id, [])
        return len(table), table[0].device.name if table else "nothing"


def _names(requests: Any) -> list[str]:
    return [request.name for request in requests]
