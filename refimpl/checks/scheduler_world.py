"""The learner's scheduler beside the account, one operation at a time: what chapter 08 plays histories on.

Random lives of requests go through `schedule()`, and after every step everything that a caller can see is compared with
the account. A class of account that takes one small decision otherwise is a thought; a wrong answer is named when one
thought alone explains every step of the history and of the examples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from refimpl.block_manager import BlockSpaceManager
from refimpl.checks.scheduler_account import (
    PREEMPTION,
    RUNNING,
    Blocks,
    Limits,
    Outcome,
    Refused,
    SchedulerAccount,
    Unsure,
    View,
)
from refimpl.checks.step import RUNS, History, Log, Names, Operation, Setup, Step, World, counted, said, show
from refimpl.checks.thoughts import only_one
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
NEXT = "schedule 0"  # the next step, in a history
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
    """A world's sizes, with prefix caching or without; `percent` is the watermark, where truncation leaves no doubt.

    `mode` is how its scheduler preempts; `max_seqs` and `max_tokens` are the limits of a step, `max_len` of a sequence.
    """
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


class SchedulerWorld(World):
    """A scheduler, requests that come and go, and the account. The world is the engine, too: after each step every
    sequence that ran gets a token, and a prompt is forked into the sequences that its request asks for.

    ("add", key, num_tokens, wanted, text, early)    a request; `early` is 1 for one that arrived before all others;
                                                     a sixth number is how many sequences it brings, if not 1
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
        super().__init__(subject, setup, log)
        self.names = Names()
        self.groups: dict[str, SequenceGroup] = {}
        self.texts: dict[str, int] = {}
        self.over = False  # the account does not know how it goes on
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
        before = dict(self.log.tally)
        try:
            super().perform(operation)
        except Exception:
            self.log.take_back(before)
            raise

    def _do(self, method: str, *arguments: Any) -> None:
        """Something happens to the account, and is remembered."""
        self.script.append((method, *arguments))
        getattr(self.account, method)(*arguments)

    def _add(self, key: Any, num_tokens: int, wanted: int, text: int, early: int, brought: int = 1) -> None:
        number = len(self.groups)
        name = self.names.add(key)
        self.texts[name] = text if self.caching else number
        prompt = [self._token(name, position) for position in range(num_tokens)]
        arrival = -number if early else number
        seqs = [Sequence(100 * number + i, prompt, self.block_size) for i in range(brought)]
        group = SequenceGroup(name, seqs, SamplingParams(n=wanted), float(arrival))
        self.groups[name] = group
        facts = [f"a prompt of {counted(num_tokens, 'token')}"]
        facts += [f"text {text}"] * self.caching + [f"{wanted} sequences"] * (wanted > 1)
        facts += ["which it brings along"] * (brought > 1)
        facts += ["arrived before the others"] * bool(early and number)
        line = f"scheduler.add_seq_group({name})    # {', '.join(facts)}"
        self.log.call(line, self.scheduler.add_seq_group, group)
        self._do("add", name, arrival, wanted, [seq.seq_id for seq in seqs], prompt)

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
        if self.replaying:
            return None
        left = [thought for thought in self.thoughts if self._explains(thought[1])]
        for example in self.examples if left else ():
            seen, _ = self.replayed(example)
            left = [thought for thought in left if seen._explains(thought[1])]
        return only_one(name for name, _ in left)

    def _explains(self, kind: type[SchedulerAccount]) -> bool:
        """Whether somebody who thinks so sees the same, step by step."""
        account = self._account(kind)
        for method, *arguments in self.script:
            if method != "step":
                getattr(account, method)(*arguments)
            elif not _imagined(account, *arguments):
                return False
        return True


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


NEEDS = ("add_seq_group", "abort_seq_group", "fork_seq", "free_seq", "free_finished_seq_groups", "has_unfinished_seqs")


def step_of(
    exercise_id: str,
    title: str,
    world: type[SchedulerWorld],
    misconceptions: dict[str, str],
    setups: Callable[[random.Random], Setup] = random_sizes,
) -> Step:
    """A step of this chapter, which is reached through `schedule`.

    `title`, `world`, `misconceptions` and `setups` are as in `Step`.
    """
    writes = PARTS[exercise_id]
    return Step(
        exercise_id=exercise_id,
        title=title,
        points=2,
        subject="Scheduler",
        writes=writes,
        through=("schedule",),
        needs=NEEDS,
        reference=tuple(vars(Scheduler)[name] for name in writes),
        properties=PROPERTIES,
        misconceptions=misconceptions,
        world=world,
        examples=world.examples,
        setups=setups,
    )
