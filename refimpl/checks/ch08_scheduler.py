"""Chapter 08: who runs in the next step, who makes room, who comes back.

Random lives of requests go through `schedule()`, and after every step everything that a caller can see is compared with
an account of the three queues. The account is cut into small decisions; a class that takes one of them otherwise is a
thought, and a wrong answer is named when one thought alone explains every step of the history and of the examples.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from refimpl.block import Device
from refimpl.block_manager import AllocStatus, BlockSpaceManager
from refimpl.checks.manager_account import Pair
from refimpl.checks.scheduler_account import (
    ABORTED,
    IGNORED,
    PREEMPTION,
    RUNNING,
    SWAPPED,
    WAITING,
    Blocks,
    Limits,
    Member,
    Outcome,
    Refused,
    Request,
    SchedulerAccount,
    Unsure,
    View,
)
from refimpl.checks.step import RUNS, History, Log, Names, Operation, Setup, Step, World, counted, said, show
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.scheduler import Scheduler
from refimpl.sequence import SamplingParams, Sequence, SequenceGroup, SequenceStatus

WHO = "the right requests run, in the right order"
CHARGED = "a step is charged what it computes"
ENDED = "who can never run, or cannot be saved, is ended and reported"
QUEUES = "every request stands in one queue, and in its place"
STATES = "statuses and tokens follow"
BLOCKS = "everybody holds the blocks that they should, and nobody else does"
MOVES = "the worker is told every move"
PROPERTIES = (WHO, CHARGED, ENDED, QUEUES, STATES, BLOCKS, MOVES)

SEEN = {  # what is compared -> its property, and its name for the learner; in the order of the comparison
    "scheduled": (WHO, "the requests that run"),
    "num_prefill_groups": (WHO, "outputs.num_prefill_groups"),
    "ignored": (ENDED, "outputs.ignored_seq_groups"),
    "aborted": (ENDED, "outputs.aborted_seq_groups"),
    "waiting": (QUEUES, "scheduler.waiting"),
    "running": (QUEUES, "scheduler.running"),
    "swapped": (QUEUES, "scheduler.swapped, sorted,"),  # its order is looked at by nobody
    "chunks": (CHARGED, "the list of their token_chunk_size"),
    "num_batched_tokens": (CHARGED, "outputs.num_batched_tokens"),
    "statuses": (STATES, "{}.status"),
    "lengths": (STATES, "the number of tokens of {}"),
    "computed": (STATES, "{}.num_computed_tokens"),
    "blocks": (BLOCKS, "what {} holds"),
    "free": (BLOCKS, "the number of free {} blocks"),
    "num_swapped_in": (MOVES, "the number of pairs in outputs.blocks_to_swap_in"),
    "num_swapped_out": (MOVES, "the number of pairs in outputs.blocks_to_swap_out"),
    "num_copied": (MOVES, "the number of pairs in outputs.blocks_to_copy"),
    "preempted": (QUEUES, "outputs.preempted"),
}
LISTS = {  # list of pairs in the outputs -> the call whose pairs they are
    "blocks_to_swap_in": "swap_in",
    "blocks_to_swap_out": "swap_out",
    "blocks_to_copy": "append_slots",
}
MODES = (None, "recompute", "swap")
PARTS = {  # what a learner writes in each step; in a check the other parts are refimpl's
    "08-prefills": ("_schedule_prefills",),
    "08-running": ("_append_slots", "_take_victim", "_make_room", "_schedule_running"),
    "08-preempt": ("_preemption_mode", "_preempt"),
    "08-swapped": ("_schedule_swapped",),
    "08-schedule": ("_schedule",),
}
MOST_REQUESTS, MOST_SEQS = 5, 4  # that have not ended; of a request

Thought = tuple[str, type[SchedulerAccount]]  # a misconception, and what comes of it


def sizes(
    block_size: int,
    num_gpu_blocks: int,
    num_cpu_blocks: int = 0,
    *,
    percent: int = 0,
    caching: bool = False,
    mode: str | None = None,
    max_seqs: int = 256,
    max_len: int = 64,
    max_tokens: int = 2048,
) -> Setup:
    """A world's sizes; `percent` is the watermark, where truncation leaves no doubt."""
    return {
        "block_size": block_size,
        "num_gpu_blocks": num_gpu_blocks,
        "num_cpu_blocks + 1": num_cpu_blocks + 1,
        "percent + 1": percent + 1,
        "caching + 1": int(caching) + 1,
        "mode + 1": MODES.index(mode) + 1,
        "max_num_seqs": max_seqs,
        "max_model_len": max_len,
        "max_num_batched_tokens": max_tokens,
    }


def random_sizes(rng: random.Random) -> Setup:
    """Small pools and small steps, in which everything happens soon."""
    max_len, max_seqs = rng.choice((6, 12, 40)), rng.choice((2, 3, 4, 8))
    return sizes(
        rng.choice((1, 2, 3, 4)),
        rng.randint(2, 10),
        rng.choice((0, 1, 2, 4, 10, 10)),
        percent=rng.choice((0, 0, 10, 25)),
        caching=rng.random() < 0.25,
        mode=rng.choice((None, None, "recompute", "swap", "swap")),
        max_seqs=max_seqs,
        max_len=max_len,
        max_tokens=max(max_len, max_seqs) + rng.choice((0, 3, 20)),
    )


def swapping_sizes(rng: random.Random) -> Setup:
    """As `random_sizes`, in a world in which requests go to the CPU and come back."""
    mode = MODES.index(rng.choice((None, "swap", "swap"))) + 1
    sizes_of_pools = {"num_gpu_blocks": rng.randint(3, 8), "num_cpu_blocks + 1": rng.choice((3, 11, 11))}
    return random_sizes(rng) | sizes_of_pools | {"mode + 1": mode, "percent + 1": rng.choice((1, 1, 26))}


class _Manager(BlockSpaceManager):
    """refimpl's own, which keeps in mind what it has told to be moved in a step."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.told: dict[str, list[tuple[int, int]]] = {call: [] for call in LISTS.values()}

    def append_slots(self, seq: Sequence, num_lookahead_slots: int = 0) -> list[tuple[int, int]]:
        return self._tell("append_slots", super().append_slots(seq, num_lookahead_slots))

    def swap_in(self, group: SequenceGroup) -> list[tuple[int, int]]:
        return self._tell("swap_in", super().swap_in(group))

    def swap_out(self, group: SequenceGroup) -> list[tuple[int, int]]:
        return self._tell("swap_out", super().swap_out(group))

    def _tell(self, call: str, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        self.told[call] += pairs
        return pairs


class _SchedulerWorld(World):
    """A scheduler, requests that come and go, and the account. The world is the engine, too: after each step every
    sequence that ran gets a token, and a prompt is forked into the sequences that its request asks for.

    ("add", key, num_tokens, wanted, text, early)    a request; `early` is 1 for one that arrived before all others
    ("schedule", how)                                a step; siblings get the same token when `how` is 1, and a prompt
                                                     is not forked yet when it is 2
    ("end", key, i), ("fork", key, i)                a running sequence has all its tokens, or goes on as two
    ("abort", key)
    """

    exercise_id = ""
    phase = 0  # the one that this step is about; 0 for all
    thoughts: tuple[Thought, ...] = ()
    examples: tuple[History, ...] = ()

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.subject, self.log = subject, log
        self.names = Names()
        self.groups: dict[str, SequenceGroup] = {}
        self.texts: dict[str, int] = {}
        self.over = False  # the account does not know how it goes on
        self.quiet = False  # played to see what a thought explains
        self.script: list[tuple[Any, ...]] = []  # what was done to the account, and what was seen of each step
        self.block_size, gpu, cpu = setup["block_size"], setup["num_gpu_blocks"], setup["num_cpu_blocks + 1"] - 1
        percent, self.caching = setup["percent + 1"] - 1, setup["caching + 1"] == 2
        mode, seqs = MODES[setup["mode + 1"] - 1], setup["max_num_seqs"]
        self.limits = Limits(setup["max_model_len"], setup["max_num_batched_tokens"], seqs, mode)
        self.pools = (self.block_size, gpu, cpu, percent * gpu // 100, self.caching)
        self.account = self._account(SchedulerAccount)
        words = f"block_size={self.block_size}, num_gpu_blocks={gpu}, num_cpu_blocks={cpu}, watermark={percent / 100}"
        log.note(f"manager = BlockSpaceManager({words}{', enable_caching=True' * self.caching})")
        self.manager = _Manager(self.block_size, gpu, cpu, percent / 100, self.caching)
        config = SchedulerConfig(self.limits.max_tokens, seqs, self.limits.max_model_len, mode)
        words = f"max_model_len={config.max_model_len}"
        words += f", max_num_batched_tokens={self.limits.max_tokens}" * (self.limits.max_tokens != 2048)
        words += f", max_num_seqs={seqs}" * (seqs != 256) + f", preemption_mode={mode!r}" * (mode is not None)
        line = f"scheduler = Scheduler(SchedulerConfig({words}), CacheConfig(), manager)"
        self.scheduler = log.call(line, _alone(subject, self.exercise_id), config, CacheConfig(), self.manager)

    def _account(self, kind: type[SchedulerAccount]) -> SchedulerAccount:
        return kind(self.limits, Blocks(*self.pools))

    # What can be done.

    def choices(self) -> Iterable[Operation]:
        """Every operation that is possible now, steps most often."""
        operations = [operation for operation in self._all_choices() if self.possible(operation)]
        steps = [("schedule", 0), ("schedule", 1)] * (2 + len(operations) // 3) + [("schedule", 2)]
        return operations + [step for step in steps if self.possible(step)]

    def _all_choices(self) -> Iterator[Operation]:
        new, size = self.names.new_key(), self.block_size
        for num_tokens in sorted({1, size, size + 1, 2 * size, 3 * size + 1}):
            wanted = (1, 1, 2, 3)[(num_tokens + len(self.groups)) % 4]
            yield "add", new, num_tokens, wanted, num_tokens % 2, int(len(self.groups) % 5 == 4)
        if len(self.groups) % 3 == 1:
            yield "add", new, self.limits.max_model_len + 1, 1, 0, 0
            yield "add", new, self.limits.max_model_len, 1, 0, 0
        for key, name in self.names.items():
            members = self.account.requests[name].members
            yield from (("end", key, i) for i in range(len(members)))
            if self.limits.mode != "recompute":
                yield "fork", key, len(members) - 1
            if len(self.groups) % 2:
                yield "abort", key

    def possible(self, operation: Operation) -> bool:
        """Whether it makes sense now, in the life of a server."""
        verb, *arguments = operation
        if self.over:
            return False
        if verb == "schedule":
            return True
        key, *numbers = arguments
        if verb == "add":
            unfinished = sum(bool(request.unfinished) for request in self.account.requests.values())
            fits = numbers[1] <= self.limits.max_seqs and unfinished < MOST_REQUESTS
            return key not in self.names and fits
        if key not in self.names:
            return False
        request = self.account.requests[self.names[key]]
        if verb == "abort":
            return bool(request.unfinished)
        if numbers[0] >= len(request.members) or request not in self.account.running:
            return False
        if request.members[numbers[0]].status is not RUNNING:
            return False
        return verb == "end" or len(request.members) < MOST_SEQS

    # What is done.

    def perform(self, operation: Operation) -> None:
        """Do it to the scheduler and to the account; what differs afterwards takes back what else was compared."""
        self.log.reached = False
        tally = {name: count for name, count in self.log.tally.items() if name != RUNS}
        try:
            perform_it = getattr(self, f"_{operation[0]}")
            perform_it(*operation[1:])
        except Exception:
            runs = self.log.tally.get(RUNS, 0)
            self.log.tally.clear()
            self.log.tally.update(tally | {RUNS: runs})
            raise

    def _do(self, method: str, *arguments: Any) -> None:
        """Something happens to the account, and is remembered."""
        self.script.append((method, *arguments))
        getattr(self.account, method)(*arguments)

    def _add(self, key: Any, num_tokens: int, wanted: int, text: int, early: int) -> None:
        number = len(self.groups)
        name = self.names.add(key)
        self.texts[name] = text if self.caching else number
        prompt = [self._token(name, position) for position in range(num_tokens)]
        arrival = -number if early else number
        seq = Sequence(100 * number, prompt, self.block_size)
        group = SequenceGroup(name, [seq], SamplingParams(n=wanted), float(arrival))
        self.groups[name] = group
        facts = [f"a prompt of {counted(num_tokens, 'token')}"]
        facts += [f"text {text}"] * self.caching + [f"{wanted} sequences"] * (wanted > 1)
        facts += ["arrived before the others"] * bool(early and number)
        line = f"scheduler.add_seq_group({name})    # {', '.join(facts)}"
        self.log.call(line, self.scheduler.add_seq_group, group)
        self._do("add", name, arrival, wanted, seq.seq_id, prompt)

    def _end(self, key: Any, i: int) -> None:
        name = self.names[key]
        seq = self.groups[name].seqs[i]
        label = f"{name}.seqs[{i}]"
        line = f"{label}.status = SequenceStatus.FINISHED_STOPPED; scheduler.free_seq({label})"
        seq.status = SequenceStatus.FINISHED_STOPPED
        self.log.call(line, self.scheduler.free_seq, seq)
        self.scheduler.free_finished_seq_groups()
        self._do("finish", name, i)

    def _abort(self, key: Any) -> None:
        name = self.names[key]
        self.log.call(f"scheduler.abort_seq_group({name!r})", self.scheduler.abort_seq_group, name)
        self._do("abort", name)

    def _fork(self, key: Any, i: int) -> None:
        name = self.names[key]
        child = self._fork_one(name, i)
        self.log.note(f"{name}.add({name}.seqs[{i}].fork({child})); scheduler.fork_seq(…)")

    def _fork_one(self, name: str, i: int) -> int:
        group = self.groups[name]
        parent = group.seqs[i]
        child = parent.fork(parent.seq_id // 100 * 100 + len(group.seqs))
        group.add(child)
        self.scheduler.fork_seq(parent, child)
        self._do("fork", name, i, child.seq_id)
        return child.seq_id

    def _schedule(self, how: int) -> None:
        try:
            self.account.step()
        except Unsure:
            self.over = True
            return
        now = self.account.now
        self.log.reached = not self.phase or self.phase in now.phases
        expected, seen = self.account.view(), self._seen()
        self.log.reached = _does_something(now, self.phase)  # who does nothing is right where nothing is to be done
        self.script.append(("step", seen, self._hits()))
        name = None if seen == expected else self._name()
        self._compare(expected, seen, name)
        self._compare_moves()
        late = how == 2 and any(len(r.members) < r.wanted for r, _ in now.scheduled[: now.num_prompts])
        self.log.lines[-1] += f"    # {_told(now)}{', not forked yet' * late}"
        self._work(now, how)

    def _work(self, now: Outcome, how: int) -> None:
        """What the engine does after a step."""
        for place, (request, _) in enumerate(now.scheduled):
            if place < now.num_prompts and how != 2:
                for _ in range(request.wanted - len(request.members)):
                    self._fork_one(request.name, 0)
            for i, member in enumerate(request.members):
                if member.status is RUNNING:
                    token = self._token(request.name, len(member.tokens), 0 if how == 1 else i)
                    seq = self.groups[request.name].seqs[i]
                    seq.num_computed_tokens = seq.get_len()
                    seq.append_token_id(token)
                    self._do("generate", request.name, i, token)

    def _token(self, name: str, position: int, other: int = 0) -> int:
        """The token at this position of the request's text; `other` for one that the text does not have there."""
        return 1000 * (self.texts[name] + 1) + position + 300 * other

    # What is seen, and what it tells.

    def _seen(self) -> View:
        """Everything that is to be seen of the learner's step, as `SchedulerAccount.view` has it."""
        self.log.lines.append("scheduler.schedule()")
        self.log.hold(RUNS, True, "", "")
        for pairs in self.manager.told.values():
            pairs.clear()
        try:
            got = self.scheduler.schedule(float(len(self.script)))
        except NotImplementedError:
            raise
        except Exception as error:
            self.log.broken |= {WHO, QUEUES}  # nobody runs in a step that was not decided, and a victim is nowhere
            self.script.append(("step", {"error": type(error).__name__}, {}))
            name = self._name()
            if name is None:  # then the learner is shown the line that raised it
                raise
            self.log.hold(RUNS, False, "it should raise nothing", f"it raised {said(error)}", name)
        pair = isinstance(got, tuple) and len(got) == 2
        self.log.hold(
            WHO, pair, "it should return what the worker is told, and the outputs", f"it returned {show(got)}"
        )
        self.told, self.outputs = got
        return self._view(self.outputs)

    def _hits(self) -> dict[str, int]:
        """Request -> tokens that the prefix cache held of its prompt."""
        return {data.request_id: len(data.computed_block_nums) * self.block_size for data in self.told}

    def _view(self, outputs: Any) -> View:
        members = {f"{name}.seqs[{i}]": seq for name, group in self.groups.items() for i, seq in enumerate(group.seqs)}
        tables = self.manager.block_tables
        return {
            "scheduled": [self._called(entry.seq_group) for entry in outputs.scheduled_seq_groups],
            "num_prefill_groups": outputs.num_prefill_groups,
            "chunks": [entry.token_chunk_size for entry in outputs.scheduled_seq_groups],
            "num_batched_tokens": outputs.num_batched_tokens,
            "ignored": [self._called(group) for group in outputs.ignored_seq_groups],
            "aborted": [self._called(group) for group in outputs.aborted_seq_groups],
            "waiting": [self._called(group) for group in self.scheduler.waiting],
            "running": [self._called(group) for group in self.scheduler.running],
            "swapped": sorted(self._called(group) for group in self.scheduler.swapped),
            "statuses": {label: seq.status for label, seq in members.items()},
            "lengths": {label: seq.get_len() for label, seq in members.items()},
            "computed": {label: seq.num_computed_tokens for label, seq in members.items() if not seq.is_finished()},
            "blocks": {
                label: (len(tables[seq.seq_id]), tables[seq.seq_id][0].device.name)
                if tables.get(seq.seq_id)
                else (0, "nothing")
                for label, seq in members.items()
            },
            "free": {
                "GPU": self.manager.get_num_free_gpu_blocks(),
                "CPU": self.manager.get_num_free_cpu_blocks(),
            },
            "num_swapped_in": _size(outputs.blocks_to_swap_in),
            "num_swapped_out": _size(outputs.blocks_to_swap_out),
            "num_copied": _size(outputs.blocks_to_copy),
            "preempted": outputs.preempted,
        }

    def _called(self, group: Any) -> str:
        """The name of a request, by the object itself."""
        return next((name for name, known in self.groups.items() if known is group), show(group))

    def _compare(self, expected: View, seen: View, name: str | None) -> None:
        self._compare_places(expected, seen, name)
        for key, (prop, what) in SEEN.items():
            if isinstance(expected[key], dict):
                for label in {**expected[key], **seen[key]}:
                    wanted, got = expected[key].get(label), seen[key].get(label)
                    self.log.expect(prop, what.format(label), _held(key, got), _held(key, wanted), name)
            else:
                self.log.expect(prop, what, seen[key], expected[key], name)

    def _compare_places(self, expected: View, seen: View, name: str | None) -> None:
        """Who should stand in a queue stands in one."""
        queues = ("waiting", "running", "swapped")
        places = [request for queue in queues for request in seen[queue]]
        for request in (request for queue in queues for request in expected[queue]):
            times = places.count(request)
            if times != 1:
                stands = "it stands in none" if times == 0 else f"it stands in {times} places"
                self.log.hold(QUEUES, False, f"{request} should stand in one queue", stands, name)

    def _compare_moves(self) -> None:
        """The numbers are as many as they should be: are they those that the block manager gave?"""
        for attribute, call in LISTS.items():
            got = sorted(tuple(pair) for pair in getattr(self.outputs, attribute))
            self.log.expect(MOVES, f"outputs.{attribute}, sorted,", got, sorted(self.manager.told[call]))

    def _name(self) -> str | None:
        """The thought that alone explains what was seen in this history and in the step's examples."""
        if self.quiet:
            return None
        left = {i for i, (_, kind) in enumerate(self.thoughts) if self._explains(kind)}
        if left:
            left &= self._explain_examples()
        names = {self.thoughts[i][0] for i in left}
        return next(iter(names)) if len(names) == 1 else None

    def _explains(self, kind: type[SchedulerAccount]) -> bool:
        """Whether somebody who thinks so sees the same, step by step."""
        account = self._account(kind)
        for method, *arguments in self.script:
            if method != "step":
                getattr(account, method)(*arguments)
            elif not _imagined(account, *arguments):
                return False
        return True

    def _explain_examples(self) -> set[int]:
        """The thoughts that explain what is seen in all the examples, each up to its first difference."""
        left = set(range(len(self.thoughts)))
        for example in self.examples:
            world = self._played(example)
            left = {i for i in left if world._explains(self.thoughts[i][1])}
        return left

    def _played(self, history: History) -> _SchedulerWorld:
        """Another world in which this history has been played, as far as it goes."""
        world = type(self)(self.subject, history.setup, Log())
        world.quiet = True
        with contextlib.suppress(Exception):  # a wrong answer ends it, too: what was seen up to then counts
            for operation in history.operations:
                if world.possible(operation):
                    world.perform(operation)
        return world


def _imagined(account: SchedulerAccount, seen: View, hits: dict[str, int]) -> bool:
    """Whether somebody who thinks as this account does sees this of the next step."""
    account.hits = hits
    try:
        account.step()
    except Refused as error:
        return seen == {"error": error.args[0]}
    except Unsure:
        return False
    return account.view() == seen


def _does_something(now: Outcome, phase: int) -> bool:
    """Whether the step's phase, or any of them, has an effect."""
    ignored_first = now.ignored and 1 in now.phases and 2 not in now.phases
    effects = {
        1: now.num_prompts or ignored_first,
        2: 2 in now.phases and len(now.scheduled) > len(now.swapped_in),
        3: now.swapped_in or (now.ignored and 1 not in now.phases),
        PREEMPTION: PREEMPTION in now.phases,
    }
    return bool(effects[phase] if phase else any(effects.values()))


def _alone(subject: Any, exercise_id: str) -> Any:
    """The learner's class with refimpl's own parts in place of those of the other steps, be they right or not."""
    if not issubclass(subject, Scheduler):
        return subject
    parts = [part for step, names in PARTS.items() if step != exercise_id for part in names]
    return type(subject.__name__, (subject,), {part: vars(Scheduler)[part] for part in parts})


def _size(pairs: Any) -> Any:
    """How many pairs there are."""
    return len(pairs) if isinstance(pairs, list | tuple) else show(pairs)


def _held(key: str, value: Any) -> Any:
    """A pair of a number and a device, in words; everything else as it is."""
    if key != "blocks" or value is None:
        return value
    return f"{counted(value[0], f'{value[1]} block')}" if value[0] else "nothing"


def _told(now: Outcome) -> str:
    """What a step did, for the line that shows it."""
    prompts = [f"{request.name} ({counted(tokens, 'token')})" for request, tokens in now.scheduled[: now.num_prompts]]
    decodes = [request.name for request, _ in now.scheduled[now.num_prompts :]]
    parts = {
        "ignored": [request.name for request in now.ignored],
        "prefill": prompts,
        "recomputed": [request.name for request in now.recomputed],
        "swapped out": [request.name for request in now.swapped_out],
        "aborted": [request.name for request in now.aborted],
        "swapped in": [request.name for request in now.swapped_in],
        "decode": decodes,
    }
    words = [f"{what}: {', '.join(names)}" for what, names in parts.items() if names]
    return "; ".join(words) or "nothing"


# The thoughts of each step.


class _OvertakesLater(SchedulerAccount):
    def stops_at(self, request: Request, answer: AllocStatus) -> bool:
        return answer is not AllocStatus.LATER


class _OvertakesBudget(SchedulerAccount):
    def stops_at(self, request: Request, answer: AllocStatus) -> bool:
        return answer is AllocStatus.LATER


class _OvertakesBoth(SchedulerAccount):
    def stops_at(self, request: Request, answer: AllocStatus) -> bool:
        return False


class _LaterIsNever(SchedulerAccount):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        answer = super().answer_to_prompt(request)
        return AllocStatus.NEVER if answer is AllocStatus.LATER else answer


class _NeverIsLater(SchedulerAccount):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        answer = super().answer_to_prompt(request)
        return AllocStatus.LATER if answer is AllocStatus.NEVER else answer


class _WaitsForBlocksFirst(SchedulerAccount):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        blocks = self.blocks.answer(self.blocks.required(len(request.of(WAITING)[0].tokens)))
        return blocks if blocks is AllocStatus.LATER else super().answer_to_prompt(request)


class _WaitsForTheStepFirst(SchedulerAccount):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        return super().answer_to_prompt(request) if self.prompt_fits(request) else AllocStatus.LATER


class _WaitsForBothFirst(_WaitsForBlocksFirst):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        return super().answer_to_prompt(request) if self.prompt_fits(request) else AllocStatus.LATER


class _IgnoredStays(SchedulerAccount):
    """The loop goes on with the same request, which has no WAITING sequence any more."""

    error = "IndexError"

    def ignore(self, request: Request, queue: list[Request]) -> None:
        raise Refused(self.error)


class _IgnoredStaysAndStops(SchedulerAccount):
    def ignore(self, request: Request, queue: list[Request]) -> None:
        super().ignore(request, queue)
        queue.insert(0, request)

    def in_turn(self, queue: list[Request]) -> Iterator[Request]:
        for request in list(queue):
            if not self.now.ignored:
                yield request


class _IgnoringEndsTheStep(SchedulerAccount):
    def in_turn(self, queue: list[Request]) -> Iterator[Request]:
        for request in list(queue):
            if not self.now.ignored:
                yield request


class _NothingCharged(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        if 2 in self.now.phases:
            super().charge(num_tokens, num_seqs)


class _TokensNotCharged(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        super().charge(num_tokens if 2 in self.now.phases else 0, num_seqs)


class _SeqsNotCharged(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        super().charge(num_tokens, num_seqs if 2 in self.now.phases else 0)


class _OnePromptAStep(SchedulerAccount):
    def in_turn(self, queue: list[Request]) -> Iterator[Request]:
        for request in list(queue):
            if not self.now.scheduled:
                yield request


class _OneSequenceCharged(SchedulerAccount):
    def prompt_seqs(self, request: Request) -> int:
        return len(request.unfinished)


class _PromptOnly(SchedulerAccount):
    def prompt_len(self, request: Request) -> int:
        return request.unfinished[0].prompt_len


class _HitsNotCharged(SchedulerAccount):
    def prompt_charge(self, request: Request) -> tuple[int, int]:
        num_tokens = self.prompt_len(request) - self.hits.get(request.name, 0)
        return num_tokens, num_tokens


class _HitsNotChargedToTheStep(SchedulerAccount):
    def prompt_charge(self, request: Request) -> tuple[int, int]:
        return self.prompt_len(request) - self.hits.get(request.name, 0), self.prompt_len(request)


class _NewestPromptFirst(SchedulerAccount):
    def in_turn(self, queue: list[Request]) -> Iterable[Request]:
        return queue[::-1]


class _StaysWaiting(SchedulerAccount):
    def set_status(self, request: Request, before: SequenceStatus, after: SequenceStatus) -> None:
        if before is not WAITING:
            super().set_status(request, before, after)


class _NoPrompts(SchedulerAccount):
    def num_prompts(self) -> int:
        return 0


class _OldestMakesRoom(SchedulerAccount):
    def take_victim(self, request: Request, queue: list[Request]) -> Request:
        return queue.pop(0) if queue else request


class _ItselfMakesRoom(SchedulerAccount):
    def take_victim(self, request: Request, queue: list[Request]) -> Request:
        return request


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


class _PrefillBeside(SchedulerAccount):
    def all_phases(self) -> None:
        self.prefill()
        if not self.now.scheduled:
            self.decode()
            if not (self.now.preempted or self.now.aborted):
                self.come_back()


class _RunningNotCharged(SchedulerAccount):
    def running_seqs(self) -> int:
        return 0


class _GroupsCharged(SchedulerAccount):
    def running_seqs(self) -> int:
        return len(self.running)


class _UnfinishedCharged(SchedulerAccount):
    def running_seqs(self) -> int:
        return sum(len(request.unfinished) for request in self.running)


class _MixedStep(SchedulerAccount):
    def all_phases(self) -> None:
        if not self.swapped:
            self.prefill()
        self.decode()
        if not (self.now.preempted or self.now.aborted):
            self.come_back()


class _BackAfterAll(SchedulerAccount):
    def all_phases(self) -> None:
        if not self.swapped:
            self.prefill()
        if not self.now.scheduled:
            self.decode()
            self.come_back()


class _BackAfterPreemption(SchedulerAccount):
    def all_phases(self) -> None:
        if not self.swapped:
            self.prefill()
        if not self.now.scheduled:
            self.decode()
            if not self.now.aborted:
                self.come_back()


class _BackAfterAbort(SchedulerAccount):
    def all_phases(self) -> None:
        if not self.swapped:
            self.prefill()
        if not self.now.scheduled:
            self.decode()
            if not self.now.preempted:
                self.come_back()


class _DecodeFirst(SchedulerAccount):
    def all_phases(self) -> None:
        self.decode()
        if not (self.now.preempted or self.now.aborted):
            self.come_back()
        if not self.now.scheduled and not self.swapped:
            self.prefill()


class _BackFirst(SchedulerAccount):
    def all_phases(self) -> None:
        if not self.swapped:
            self.prefill()
        if not self.now.scheduled:
            self.come_back()
            self.decode()


class _BackIfIdle(SchedulerAccount):
    def all_phases(self) -> None:
        if not self.swapped:
            self.prefill()
        if not self.now.scheduled:
            self.decode()
        if not (self.now.scheduled or self.now.preempted or self.now.aborted):
            self.come_back()


class _TokensNotReported(SchedulerAccount):
    def step(self) -> None:
        super().step()
        self.now.num_tokens = 0


class _ModelLenBudget(SchedulerAccount):
    def fits(self, num_tokens: int, num_seqs: int) -> bool:
        return self.now.num_tokens + num_tokens <= self.limits.max_model_len and super().fits(num_tokens, num_seqs)


# The worlds of each step, and what is played first: requests, tokens, sequences, text, early.


def _history(setup: Setup, *operations: str) -> History:
    """A history from its operations as text: numbers are numbers, everything else are names."""
    parts = (operation.split() for operation in operations)
    return History(setup, tuple(tuple(int(part) if part.isdigit() else part for part in words) for words in parts))


STEP = "schedule 0"

PREFILLS_EXAMPLES = (
    _history(
        sizes(4, 8, max_seqs=4, max_len=12, max_tokens=12),
        "add a 5 1 0 0",
        "add b 7 1 0 0",
        "add c 1 1 0 0",
        STEP,
        STEP,
    ),
    _history(sizes(4, 4), "add a 8 1 0 0", "add b 12 1 0 0", "add c 1 1 0 0", STEP),
    _history(sizes(4, 4), "add a 3 1 0 0", "add b 17 1 0 0", "add c 3 1 0 0", STEP),
    _history(sizes(4, 8, max_len=8), "add a 9 1 0 0", "add b 3 1 0 0", STEP),
    _history(sizes(4, 4, percent=25), "add a 13 1 0 0", "add b 12 1 0 0", STEP),
    _history(sizes(4, 8, max_seqs=3), "add a 4 2 0 0", "add b 4 2 0 0", "add c 1 1 0 0", STEP, STEP),
    _history(sizes(4, 8, max_seqs=2), "add a 4 1 0 0", "add b 4 1 0 0", "add c 1 1 0 0", STEP, STEP),
    _history(sizes(2, 2), "add a 3 1 0 0", STEP, STEP, STEP),
    _history(sizes(4, 8, caching=True), "add a 8 1 0 0", STEP, "add b 8 1 0 0", STEP),
)
RUNNING_EXAMPLES = (
    _history(sizes(4, 4), "add a 8 1 0 0", "add b 8 1 0 0", "add c 1 1 0 0", STEP, STEP),
    _history(sizes(4, 3), "add a 4 1 0 0", "add b 4 1 0 0", "add c 4 1 0 0", STEP, STEP),
    _history(sizes(4, 3), "add a 4 2 0 0", "add b 4 1 0 0", "add c 4 1 0 0", STEP, "add d 1 1 0 0", STEP),
    _history(sizes(4, 4), "add a 4 1 0 0", "add b 4 1 0 0", "add c 8 1 0 0", STEP, STEP),
    _history(sizes(4, 4), "add a 16 1 0 0", STEP, STEP),
    _history(sizes(4, 8), "add a 4 2 0 0", STEP, STEP),
    _history(sizes(4, 8), "add a 5 3 0 0", STEP, STEP),
    _history(sizes(4, 9), "add a 5 2 0 0", "add b 5 2 0 0", STEP, STEP),
    _history(sizes(4, 8), "add a 5 1 0 0", "add b 2 1 0 1", STEP, STEP),
    _history(sizes(4, 2), "add a 3 1 0 0", "add b 3 1 0 0", STEP, STEP),
    _history(sizes(4, 2), "add a 5 1 0 0", STEP, STEP),
    _history(sizes(4, 3), "add a 5 2 0 0", STEP, STEP),
    _history(  # c comes back beside a, and the step is full with it
        sizes(4, 6, 8, mode="swap", max_seqs=4),
        *("add a 2 2 0 0", "add b 16 1 0 0", "add c 2 1 0 0", STEP, STEP, "abort b", "fork a 0", STEP),
    ),
    _history(  # and here it is full without c
        sizes(4, 6, 8, mode="swap", max_seqs=4),
        *("add a 2 2 0 0", "add b 16 1 0 0", "add c 2 1 0 0", STEP, STEP, "abort b", "fork a 0", "fork a 0", STEP),
    ),
)
PREEMPT_EXAMPLES = (
    _history(sizes(4, 4), "add a 8 1 0 0", "add b 8 1 0 0", STEP, STEP),
    _history(sizes(4, 4, 8), "add a 8 1 0 0", "add b 7 2 0 0", STEP, STEP),
    _history(sizes(4, 4, 8, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", STEP, STEP),
    _history(sizes(4, 4, 8, mode="recompute"), "add a 8 1 0 0", "add b 7 2 0 0", STEP, STEP),
    _history(sizes(4, 4, 8, mode="recompute"), "add a 8 1 0 0", "add b 8 1 0 0", STEP, STEP),
    _history(sizes(4, 4, 8), "add a 8 1 0 0", "add b 8 2 0 0", "schedule 2", STEP),
    _history(sizes(4, 4, 8, mode="recompute"), "add a 8 1 0 0", "add b 8 2 0 0", "schedule 2", STEP),
    _history(sizes(4, 4), "add a 7 2 0 0", STEP, STEP),
    _history(sizes(4, 4, mode="swap"), "add a 16 1 0 0", STEP, STEP),
    _history(sizes(4, 2, 4), "add a 8 2 0 0", STEP, "end a 0", STEP),
    _history(sizes(4, 2, 4, mode="recompute"), "add a 8 2 0 0", STEP, "end a 0", STEP),
    _history(sizes(4, 3, 4), "add a 4 2 0 0", "add b 4 2 0 0", "add c 4 2 0 0", STEP, STEP),
)
SWAPPED_EXAMPLES = (
    _history(sizes(4, 4, 8, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", STEP, STEP, "abort a", STEP),
    _history(sizes(4, 4, 8), "add a 7 2 0 0", STEP, STEP, STEP, STEP),
    _history(sizes(4, 5, 8, percent=20), "add a 7 2 0 0", STEP, STEP, STEP, STEP, STEP),
    _history(sizes(4, 4, 8), "add a 4 1 0 0", "add b 6 2 0 0", STEP, STEP, STEP),
    _history(sizes(4, 5, 8, mode="swap"), "add a 4 1 0 0", "add b 12 1 0 0", "add c 4 1 0 0", STEP, STEP, STEP),
    _history(sizes(4, 6, 8), "add a 16 1 0 0", "add b 7 2 0 0", STEP, STEP, "abort a", STEP),
    _history(sizes(4, 3, 2, mode="swap"), "add a 3 3 0 0", "add b 3 1 0 0", "add c 3 1 0 0", STEP, STEP, STEP),
    _history(sizes(4, 2, 8, mode="swap"), "add a 4 1 0 0", "add b 4 1 0 0", STEP, STEP, "end a 0", STEP),
    _history(  # b and c would come back in one step, and c would be given what b copies
        sizes(3, 6, 8, caching=True, mode="swap"),
        *("add a 1 3 0 0", "add b 8 2 1 0", "add c 1 1 2 0", "schedule 1", "schedule 1", STEP),
    ),
    _history(  # b would be given what a copies
        sizes(3, 5, 8, caching=True, mode="swap"),
        *("add a 1 2 0 0", "add b 9 1 1 0", "schedule 1", "schedule 1", "fork a 0", STEP),
    ),
    _history(  # so it would here, but it can never come back
        sizes(2, 4, 8, caching=True),
        *("add a 2 1 0 0", "add b 6 2 1 0", STEP, STEP, "fork a 0", STEP),
    ),
    _history(  # b can never come back, and the step would have no room for it
        sizes(4, 4, 8, max_seqs=3),
        *("add a 2 1 0 0", "add b 9 2 0 0", STEP, "fork a 0", STEP, STEP),
    ),
    _history(  # b is one sequence and is charged the two that it is going to be
        sizes(3, 4, 8, caching=True, mode="swap", max_seqs=3),
        *("add a 1 1 0 0", "add b 6 2 1 0", "schedule 2", "fork a 0", "schedule 1", STEP),
    ),
    _history(  # c is one sequence and is charged the two that it is going to be
        sizes(4, 6, 8, mode="swap", max_seqs=4),
        *("add a 2 1 0 0", "add b 16 1 0 0", "add c 2 2 0 0", "schedule 2", STEP),
        *("abort b", "fork a 0", "fork a 0", STEP),
    ),
    _history(  # c comes back and fills the step: b has been forked while c and d were away
        sizes(4, 7, 8, mode="swap", max_seqs=4),
        *("add a 16 1 0 0", "add b 2 1 0 0", "add c 2 1 0 0", "add d 2 1 0 0", STEP, STEP),
        *("fork b 0", "fork b 0", "abort a", STEP),
    ),
)
SCHEDULE_EXAMPLES = (
    _history(sizes(4, 8), "add a 5 1 0 0", STEP, "add b 3 1 0 0", STEP, STEP),
    _history(sizes(4, 5, 8), "add a 4 1 0 0", "add b 6 3 0 0", STEP, STEP, "add c 1 1 0 0", STEP),
    _history(sizes(4, 8, max_seqs=2), "add a 4 1 0 0", "add b 4 1 0 0", STEP, "add c 1 1 0 0", STEP),
    _history(sizes(4, 8, max_seqs=3), "add a 4 2 0 0", STEP, "add b 4 2 0 0", STEP),
    _history(sizes(4, 8, max_seqs=2), "add a 4 2 0 0", "schedule 2", "add b 1 1 0 0", STEP),
    _history(sizes(4, 6, 12, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", "add c 8 1 0 0", STEP, STEP, STEP),
    _history(sizes(4, 2, 2, mode="swap"), "add a 8 1 0 0", STEP, STEP),
    _history(sizes(4, 6, 2, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", "add c 8 1 0 0", STEP, STEP, STEP),
    _history(sizes(4, 4, 8, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", STEP, STEP, "abort a", STEP),
    _history(sizes(4, 8, max_seqs=4, max_len=8, max_tokens=12), "add a 8 1 0 0", "add b 4 1 0 0", STEP),
)


class _PrefillsWorld(_SchedulerWorld):
    exercise_id = "08-prefills"
    examples = PREFILLS_EXAMPLES
    thoughts = (
        ("overtaking", _OvertakesLater),
        ("overtaking", _OvertakesBudget),
        ("overtaking", _OvertakesBoth),
        ("later-is-never", _LaterIsNever),
        ("never-is-later", _NeverIsLater),
        ("waits-before-never", _WaitsForBlocksFirst),
        ("waits-before-never", _WaitsForTheStepFirst),
        ("waits-before-never", _WaitsForBothFirst),
        ("ignored-keeps-its-place", _IgnoredStays),
        ("ignored-keeps-its-place", _IgnoredStaysAndStops),
        ("ignoring-ends-the-step", _IgnoringEndsTheStep),
        ("step-not-charged", _NothingCharged),
        ("step-not-charged", _TokensNotCharged),
        ("step-not-charged", _SeqsNotCharged),
        ("one-prompt-a-step", _OnePromptAStep),
        ("one-sequence-charged", _OneSequenceCharged),
        ("output-forgotten", _PromptOnly),
        ("hits-not-charged", _HitsNotCharged),
        ("hits-not-charged", _HitsNotChargedToTheStep),
        ("newest-first", _NewestPromptFirst),
        ("stays-waiting", _StaysWaiting),
        ("prompts-not-counted", _NoPrompts),
    )


class _RunningWorld(_SchedulerWorld):
    exercise_id = "08-running"
    phase = 2
    examples = RUNNING_EXAMPLES
    thoughts = (
        ("oldest-makes-room", _OldestMakesRoom),
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


class _PreemptWorld(_SchedulerWorld):
    exercise_id = "08-preempt"
    phase = PREEMPTION
    examples = PREEMPT_EXAMPLES
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
        ("not-counted", _NotCounted),
        ("pairs-overwritten", _LastMovedOut),
        ("not-handed-back", _NotRemembered),
    )


class _SwappedWorld(_SchedulerWorld):
    exercise_id = "08-swapped"
    phase = 3
    examples = SWAPPED_EXAMPLES
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


class _ScheduleWorld(_SchedulerWorld):
    exercise_id = "08-schedule"
    examples = SCHEDULE_EXAMPLES
    thoughts = (
        ("prompts-beside-the-swapped", _PrefillBeside),
        ("running-not-charged", _RunningNotCharged),
        ("requests-charged", _GroupsCharged),
        ("unforked-prompt-is-one", _UnfinishedCharged),
        ("prompts-and-decodes-mixed", _MixedStep),
        ("back-after-preemption", _BackAfterAll),
        ("back-after-preemption", _BackAfterPreemption),
        ("back-after-abort", _BackAfterAbort),
        ("decode-first", _DecodeFirst),
        ("swapped-before-running", _BackFirst),
        ("back-only-if-idle", _BackIfIdle),
        ("tokens-not-reported", _TokensNotReported),
        ("longest-sequence-as-budget", _ModelLenBudget),
    )


_NEEDS = ("add_seq_group", "abort_seq_group", "fork_seq", "free_seq", "free_finished_seq_groups", "has_unfinished_seqs")


def _step(
    exercise_id: str,
    title: str,
    world: type[_SchedulerWorld],
    misconceptions: dict[str, str],
    setups: Callable[[random.Random], Setup] = random_sizes,
) -> Step:
    """A step of this chapter, which is reached through `schedule`."""
    writes = PARTS[exercise_id]
    return Step(
        exercise_id=exercise_id,
        title=title,
        points=2,
        subject="Scheduler",
        writes=writes,
        through=("schedule",),
        needs=_NEEDS,
        reference=tuple(vars(Scheduler)[name] for name in writes),
        properties=PROPERTIES,
        misconceptions=misconceptions,
        world=world,
        examples=world.examples,
        setups=setups,
    )


STEPS = (
    _step(
        "08-prefills",
        "who is let in",
        _PrefillsWorld,
        {
            "overtaking": "Nobody overtakes: the first prompt that has to wait ends the phase, or a long one would "
            "watch short ones take every block that comes free, and wait for ever.",
            "later-is-never": "LATER means that others hold the blocks now and will give them back: the request stays "
            "where it is, at the head of the queue, and only NEVER ends it.",
            "never-is-later": "A prompt that could not run even alone must not wait, since everybody behind it would "
            "wait with it, for ever: end it, report it, and go on with the next.",
            "waits-before-never": "Who could not run even alone is ended whatever the step has left: ask `_why_never` "
            "before anything that makes a request wait, or it waits, and everybody behind it with it.",
            "ignored-keeps-its-place": "A request that is ignored has ended, so it leaves the queue: take it off the "
            "head before you go on to the next one.",
            "ignoring-ends-the-step": "An ignored request takes nothing of the step, so those behind it need not wait "
            "for the next one: go on with the new head of the queue.",
            "step-not-charged": "`can_schedule` asks and charges nothing: every prompt that is let in has to be added "
            "to the budget, tokens and sequences, or the next one is measured against an empty step.",
            "one-prompt-a-step": "A step holds as many prompts as fit into its budget: go on from the new head of the "
            "queue until one has to wait.",
            "one-sequence-charged": "A prompt is charged the sequences that it is going to be, which "
            "`get_max_num_running_seqs()` knows: after the fork it is too late to find that they do not fit.",
            "output-forgotten": "A request that was recomputed comes with what it had generated: its prefill computes "
            "all its tokens, prompt and output, so all of them are charged.",
            "hits-not-charged": "Cached tokens are charged in full: what the cache holds is looked up after the "
            "decision, and the step is planned as if it held nothing.",
            "newest-first": "First come, first served: the request at the head of `waiting`, on its left, has waited "
            "longest and is looked at first.",
            "stays-waiting": "A request that has its blocks is RUNNING: without the status nothing after this step, "
            "neither the worker nor `append_slots`, finds its sequences.",
            "prompts-not-counted": "The engine takes the first `num_prefill_groups` of those scheduled for prompts: "
            "left at 0, whole prompts are treated as decodes of one token.",
        },
    ),
    _step(
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
    ),
    _step(
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
            "finished-revived": "What has ended stays as it ended: only the unfinished sequence is to be WAITING "
            "again.",
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
            "aborted-keeps-blocks": "Neither a report nor a status frees a block: end the request with `_end`, which "
            "sets the status and lets go of what it holds, or its blocks are lost to everybody.",
            "abort-not-reported": "Whoever sent the request waits for an answer: put it into `aborted_seq_groups`, or "
            "nobody ever tells them that it has ended.",
            "not-counted": "Count who has made room in `outputs.preempted`: by it the next phase knows that this is no "
            "moment to bring anybody back.",
            "pairs-overwritten": "Several requests may be swapped out in one step: extend the pairs in the outputs, "
            "since what you overwrite is never copied to the CPU.",
            "not-handed-back": "A victim has left the running queue, so it must be put somewhere: append it to "
            "`recomputed`, from which it goes to the front of `waiting`.",
        },
    ),
    _step(
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
    ),
    _step(
        "08-schedule",
        "the three phases",
        _ScheduleWorld,
        {
            "prompts-beside-the-swapped": "No prompt comes in while anybody is swapped out: it would take the blocks "
            "that the swapped ones, who came before it, are waiting for.",
            "running-not-charged": "Sequences that run already take their part of `max_num_seqs`: charge them before "
            "the first prompt is measured, or more run than a step may hold.",
            "requests-charged": "`max_num_seqs` counts sequences: each running request is charged what "
            "`get_max_num_running_seqs()` says, not 1.",
            "unforked-prompt-is-one": "A running request is charged what it is going to be: "
            "`get_max_num_running_seqs()` counts a prompt that has not been forked yet as all its sequences.",
            "prompts-and-decodes-mixed": "A step is prompts or decodes and never both: when a prompt was scheduled, "
            "the running ones wait for the next step.",
            "back-after-preemption": "Where somebody has just made room there is none to give away: in a step that "
            "preempted, nobody comes back.",
            "back-after-abort": "A request that could not be saved was the sign of too little room, as a preemption "
            "is: in such a step nobody comes back either.",
            "decode-first": "Prompts go first: the running requests get their turn in the first step in which no "
            "prompt can come in.",
            "swapped-before-running": "The running ones get their slots first, and only then is it known whether "
            "anything is left for those who want to come back.",
            "back-only-if-idle": "Who comes back runs beside those who stayed, in one step of decodes: what keeps it "
            "away is a preemption, and not that others run.",
            "tokens-not-reported": "`outputs.num_batched_tokens` says how many tokens the step computes: the budget "
            "has counted them, so hand the count on.",
            "longest-sequence-as-budget": "How long a sequence may get and how much a step may hold are two limits: "
            "the budget of a step is `max_num_batched_tokens`.",
        },
    ),
)
