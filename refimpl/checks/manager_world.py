"""The learner's block manager beside the account, one operation at a time: what chapters 05 to 07 play histories on.

A chapter's world extends `ManagerWorld`: it says which operations occur (`verbs`), and in `fault` which misconception a
symptom tells. Statuses are set here, as the scheduler would. An operation is the name of the method that it calls, the
key of a request, and numbers:

    ("can_allocate", num_tokens, num_seqs, text)         a request that is only asked about
    ("allocate", key, num_tokens, num_seqs, text)        a new request
    ("allocate", key)                                    the same once more, refused
    ("allocate", key, i)                                 sequence i, which has lost its blocks, waits again
    ("append_slots", key, i, token, count)               `count` tokens for sequence i, then one call
    ("fork", key, i), ("fork", key, i, j)                a new child; onto sequence j, which has a table: refused
    ("free", key, i)                                     with a table or without
    ("finish", key, i)                                   one of several ends, and has not been freed yet
    ("can_append_slots" | "can_swap_out" | "swap_out" | "can_swap_in" | "swap_in", key)

`text` is 0 or more: prompts of one text begin with the same tokens. `token` is 0 to go on as the text would, or not.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from refimpl.allocator import CachedBlockAllocator
from refimpl.block import Device
from refimpl.checks.manager_account import Account
from refimpl.checks.manager_comparison import KEPT, Comparison, Facts
from refimpl.checks.step import Log, Names, Operation, Setup, World, equal, show
from refimpl.checks.thoughts import asked
from refimpl.prefix_hash import AnonymousKey
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

REFUSES = "what cannot be done is refused with ValueError"
REFUSAL_KEEPS = "a refused call changes nothing"
DECISION = "the answer follows from the numbers of blocks"
DECISION_KEEPS = "a question changes nothing"

GPU, CPU = Device.GPU, Device.CPU


def sizes(
    block_size: int, num_gpu_blocks: int, num_cpu_blocks: int = 1, *, percent: int = 0, caching: bool = False
) -> Setup:
    """A world's sizes, with prefix caching or without.

    `percent` is the watermark, one of 0, 1, 10, 25, 50, where truncation leaves no doubt.
    """
    return {
        "block_size": block_size,
        "num_gpu_blocks": num_gpu_blocks,
        "num_cpu_blocks": num_cpu_blocks,
        "percent + 1": percent + 1,
        "caching + 1": int(caching) + 1,
    }


def random_sizes(rng: random.Random) -> Setup:
    """Small pools, in which everything happens soon."""
    return sizes(
        rng.choice((1, 2, 3, 4)),
        rng.randint(2, 12),
        rng.randint(1, 12),
        percent=rng.choice((0, 0, 10, 25, 50)),
        caching=rng.random() < 0.4,
    )


class ManagerWorld(World):
    """A manager and the account of it."""

    verbs: tuple[str, ...] = ()  # the operations that random histories are made of
    keeps_status = KEPT  # the property that a changed status breaks

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.block_size = setup["block_size"]
        gpu, cpu, percent = setup["num_gpu_blocks"], setup["num_cpu_blocks"], setup["percent + 1"] - 1
        caching = setup["caching + 1"] == 2
        self.account = Account(self.block_size, gpu, cpu, percent * gpu // 100, caching)
        self.names = Names()
        self.groups: dict[Any, SequenceGroup] = {}  # key -> request
        self.texts: dict[Any, int] = {}  # key -> which text it is
        self.asking_again: set[int] = set()  # seq_ids whose newest token has no room yet
        self.out_of_step: set[int] = set()  # seq_ids that missed a call, and can only be freed
        self.operation: Operation = ()
        self.free_before = {GPU: 0, CPU: 0}  # by the account, before the operation
        arguments = (self.block_size, gpu, cpu, percent / 100, caching)
        words = f"block_size={self.block_size}, num_gpu_blocks={gpu}, num_cpu_blocks={cpu}, watermark={percent / 100}"
        words += ", enable_caching=True" if caching else ""
        self.manager = log.call(f"manager = BlockSpaceManager({words})", subject, *arguments)
        self.comparison = Comparison(log, self.manager, self.account, self.fault)

    def fault(self, symptom: str, facts: Facts) -> str | None:
        """The misconception that a symptom tells, after `self.operation`; `facts` fills the sentence, add to it."""
        return None

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        """An error, and the misconception it tells, of a call that must not raise."""
        return None

    def refused(self, facts: Facts) -> tuple[str | None, str | None]:
        """The misconceptions of a call that must raise ValueError: when it returns, and when it raises another."""
        return None, None

    def choices(self) -> Iterable[Operation]:
        """Every operation of `verbs` that is possible now."""
        possible: dict[Operation, bool] = {}  # an operation that should occur often is a choice several times
        for operation in self._all_choices():
            if operation[0] in self.verbs and operation not in possible:
                possible[operation] = self.possible(operation)
            if possible.get(operation):
                yield operation

    def _all_choices(self) -> Iterator[Operation]:
        lengths = sorted({1, self.block_size, self.block_size + 1, 2 * self.block_size, 3 * self.block_size + 1})
        new = self.names.new_key()
        for num_tokens in lengths:
            num_seqs = 1 + (num_tokens + len(self.groups)) % 3 // 2
            yield "can_allocate", num_tokens, num_seqs, 0
            yield "allocate", new, num_tokens, num_seqs, num_tokens % 2
        most = self.account.total[GPU] * self.block_size
        yield from (("can_allocate", num_tokens, 1, 0) for num_tokens in (most, most + 1))
        for key, group in self.groups.items():
            yield from ((verb, key) for verb in ("allocate", "can_append_slots"))
            yield from ((verb, key) for verb in ("can_swap_out", "swap_out", "can_swap_in", *["swap_in"] * 6))
            for i in range(len(group.seqs)):
                yield from [("append_slots", key, i, token, 1) for token in (0, 0, 0, 1)]
                yield "append_slots", key, i, 0, 2 * self.block_size
                yield from [("fork", key, i)] * 2
                yield "fork", key, i, 0
                yield "free", key, i
                yield "allocate", key, i
                yield "finish", key, i

    def possible(self, operation: Operation) -> bool:
        """Whether the things that it speaks of are there, in a state in which a scheduler could ask for it."""
        verb, *rest = operation
        if verb == "can_allocate":
            return True
        key, *arguments = rest
        if verb == "allocate" and len(arguments) > 1:
            return key not in self.names
        if key not in self.names:
            return False
        group = self.groups[key]
        if verb == "allocate" and not arguments:
            return all(seq.seq_id in self.account.tables for seq in group.seqs)
        if arguments and arguments[0] >= len(group.seqs):
            return False
        if verb == "allocate":
            seq = group.seqs[arguments[0]]
            return seq.seq_id not in self.account.tables and group.get_seqs(SequenceStatus.WAITING) in ([], [seq])
        if verb == "finish":
            return len(group.get_unfinished_seqs()) > 1 and not group.seqs[arguments[0]].is_finished()
        if verb == "append_slots":
            seq = group.seqs[arguments[0]]
            late = arguments[2] > 1 and seq.seq_id in self.asking_again
            return self._is_on(GPU, seq) and seq.seq_id not in self.out_of_step and not late
        if verb == "fork":
            onto = len(arguments) < 2 or group.seqs[arguments[1]].seq_id in self.account.tables
            seq = group.seqs[arguments[0]]
            fits = seq.seq_id not in self.out_of_step | self.asking_again and not self._is_on(CPU, seq)
            return onto and fits and len(group.seqs) < 4
        if verb in ("can_swap_out", "can_swap_in"):
            return all(seq.seq_id in self.account.tables for seq in group.get_unfinished_seqs())
        if verb in ("swap_out", "swap_in"):
            device, status = self._moves(verb)
            in_step = not any(seq.seq_id in self.out_of_step | self.asking_again for seq in group.seqs)
            return in_step and bool(group.get_seqs(status))
        return True

    def perform(self, operation: Operation) -> None:
        """Do it to the manager and to the account, and compare."""
        self.operation = operation
        self.free_before = {device: self.account.free(device) for device in Device}
        super().perform(operation)

    def _can_allocate(self, num_tokens: int, num_seqs: int, text: int) -> None:
        group = self._request(len(self.groups) + 1, num_tokens, num_seqs, text)
        required = self.account.required(num_tokens)
        line = f"manager.can_allocate({_prompt(num_tokens, num_seqs, text, self.account.caching)})"
        self._decide(line, group, self.account.answer(required), required=required, num_seqs=num_seqs)

    def _allocate(self, key: Any, *arguments: int) -> None:
        if not arguments:
            self._allocate_again(key)
            return
        if len(arguments) == 1:
            self._allocate_back(key, *arguments)
            return
        num_tokens, num_seqs, text = arguments
        name = self.names.add(key)
        self.groups[key] = self._request(len(self.groups), num_tokens, num_seqs, text)
        self.texts[key] = text
        self.log.note(f"{name} = {_prompt(num_tokens, num_seqs, text, self.account.caching)}")
        self._admit(key, f"manager.allocate({name})")

    def _allocate_back(self, key: Any, i: int) -> None:
        self._set_status([self.groups[key].seqs[i]], SequenceStatus.WAITING)
        self._admit(key, f"manager.allocate({self.names[key]})    # {self._seq_name(key, i)} waits again")

    def _admit(self, key: Any, line: str) -> None:
        """Whoever waits of a request, if there is room."""
        group = self.groups[key]
        waiting = group.get_seqs(SequenceStatus.WAITING)
        facts = {
            "group": self.names[key],
            "num_seqs": len(waiting),
            "required": self.account.required(waiting[0].get_len()),
            "free": self.account.free(GPU),
        }
        table = self.account.allocate([seq.seq_id for seq in waiting], tuple(waiting[0].get_token_ids()))
        if table is None:
            self._refuse(line, self.manager.allocate, group, facts=facts)
            return
        self._call(line, self.manager.allocate, group, facts=facts)
        self._set_status(waiting, SequenceStatus.RUNNING)
        self.asking_again -= {seq.seq_id for seq in waiting}
        self.out_of_step -= {seq.seq_id for seq in waiting}
        self._compare(facts)

    def _allocate_again(self, key: Any) -> None:
        group, name = self.groups[key], self.names[key]
        statuses = [seq.status for seq in group.seqs]
        self._set_status(group.seqs, SequenceStatus.WAITING)
        line = f"manager.allocate({name})    # once more, while {name} has its blocks"
        self._refuse(line, self.manager.allocate, group, facts={"group": name})
        for seq, status in zip(group.seqs, statuses, strict=True):
            seq.status = status

    def _can_append_slots(self, key: Any) -> None:
        group, name = self.groups[key], self.names[key]
        num_running = len(group.get_seqs(SequenceStatus.RUNNING))
        free = self.account.free(GPU)
        line = f"manager.can_append_slots({name})"
        self._decide(line, group, num_running <= free, group=name, num_running=num_running)

    def _append_slots(self, key: Any, i: int, token: int, count: int) -> None:
        seq, name = self.groups[key].seqs[i], self._seq_name(key, i)
        call, tokens = f"manager.append_slots({name})", []
        if seq.seq_id not in self.asking_again:
            tokens = [_token(self.texts[key], seq.get_len() + j, token) for j in range(count)]
            calls = "; ".join(f"{name}.append_token_id({token_id})" for token_id in tokens)
            call = f"{calls}; {call}" if count == 1 else f"# {count} tokens join {name}: {call}"
        for token_id in tokens:
            seq.append_token_id(token_id)
        table = self.account.tables[seq.seq_id]
        last = table[-1]
        facts: Facts = {
            "seq": name,
            "length": seq.get_len(),
            "block_size": self.block_size,
            "required": self.account.required(seq.get_len()),
            "blocks": len(table),
            "free": self.account.free(GPU),
            "last": self.comparison.numbers[last],
            "owners": self.account.owners(last),
        }
        pairs = self.account.append(seq.seq_id, tuple(seq.get_token_ids()))
        if pairs is None:
            missing = facts["required"] - facts["blocks"]
            (self.out_of_step if missing > 1 else self.asking_again).add(seq.seq_id)
            self._refuse(call, self.manager.append_slots, seq, facts={**facts, "missing": missing})
            return
        self.asking_again.discard(seq.seq_id)
        got = self._call(call, self.manager.append_slots, seq, facts=facts)
        self._compare(facts)
        self.comparison.pairs(got, pairs, facts)

    def _fork(self, key: Any, i: int, onto: int | None = None) -> None:
        group, parent = self.groups[key], self.groups[key].seqs[i]
        facts = {"parent": self._seq_name(key, i)}
        if onto is not None:
            facts["child"] = self._seq_name(key, onto)
            line = f"manager.fork({facts['parent']}, {facts['child']})"
            self._refuse(line, self.manager.fork, parent, group.seqs[onto], facts=facts)
            return
        child = parent.fork(new_seq_id=parent.seq_id // 100 * 100 + len(group.seqs))
        group.add(child)
        facts["child"] = self._seq_name(key, len(group.seqs) - 1)
        if parent.seq_id not in self.account.tables:
            self._set_status([child], SequenceStatus.FINISHED_ABORTED)
        self.account.fork(parent.seq_id, child.seq_id)
        line = f"{self.names[key]}.add({facts['parent']}.fork(new_seq_id={child.seq_id})); "
        line += f"manager.fork({facts['parent']}, {facts['child']})"
        self._call(line, self.manager.fork, parent, child, facts=facts)
        self._compare(facts)

    def _free(self, key: Any, i: int) -> None:
        seq, name = self.groups[key].seqs[i], self._seq_name(key, i)
        table = self.account.tables.get(seq.seq_id)
        facts = {"seq": name, "has_table": table is not None, "on": table[0].device.name if table else "nothing"}
        self.account.let_go(seq.seq_id)
        self._set_status([seq], SequenceStatus.FINISHED_STOPPED)
        self._call(f"manager.free({name})", self.manager.free, seq, facts=facts)
        self._compare(facts)

    def _finish(self, key: Any, i: int) -> None:
        self.groups[key].seqs[i].status = SequenceStatus.FINISHED_STOPPED
        self.log.note(f"{self._seq_name(key, i)}.status = SequenceStatus.FINISHED_STOPPED    # not freed yet")

    def _can_swap_out(self, key: Any) -> None:
        group, name = self.groups[key], self.names[key]
        distinct = len(self.account.distinct([seq.seq_id for seq in group.get_unfinished_seqs()]))
        free = self.account.free(CPU)
        line = f"manager.can_swap_out({name})"
        self._decide(line, group, distinct <= free, group=name, distinct=distinct, free_cpu=free)

    def _can_swap_in(self, key: Any) -> None:
        group, name = self.groups[key], self.names[key]
        distinct = len(self.account.distinct([seq.seq_id for seq in group.get_unfinished_seqs()]))
        num_swapped = len(group.get_seqs(SequenceStatus.SWAPPED))
        required = distinct + num_swapped
        facts = {"group": name, "distinct": distinct, "num_swapped": num_swapped, "required": required}
        self._decide(f"manager.can_swap_in({name})", group, self.account.answer(required), **facts)

    def _swap_out(self, key: Any) -> None:
        self._swap(key, "swap_out", CPU, SequenceStatus.SWAPPED)

    def _swap_in(self, key: Any) -> None:
        self._swap(key, "swap_in", GPU, SequenceStatus.RUNNING)

    def _swap(self, key: Any, verb: str, device: Device, status: SequenceStatus) -> None:
        group, name = self.groups[key], self.names[key]
        seqs = group.get_seqs(self._moves(verb)[1])
        seq_ids = [seq.seq_id for seq in seqs]
        distinct, entries = self.account.distinct(seq_ids), sum(len(self.account.tables[i]) for i in seq_ids)
        facts = {
            "group": name,
            "distinct": len(distinct),
            "entries": entries,
            "free": self.account.free(device),
            "device": device.name,
        }
        pairs = self.account.swap(seq_ids, device)
        call, line = getattr(self.manager, verb), f"manager.{verb}({name})"
        if pairs is None:
            self._refuse(line, call, group, facts=facts)
            return
        got = self._call(line, call, group, facts=facts)
        self._set_status(seqs, status)
        self._compare(facts)
        self.comparison.pairs(got, pairs, facts)

    def _decide(self, line: str, asked: SequenceGroup, expected: Any, **facts: Any) -> None:
        """A question: the answer is the account's, and nothing has changed."""
        facts |= {"free": self.account.free(GPU), "total": self.account.total[GPU], "expected": show(expected)}
        facts["reserved"] = self.account.watermark_blocks
        contents = self._contents()
        got = self._call(line, getattr(self.manager, self.operation[0]), asked, facts=facts)
        facts["got"] = got
        fault = None if equal(got, expected) else self.fault("answer", facts)
        self.log.expect(DECISION, "the answer", got, expected, fault, **{**facts, "got": show(got)})
        self._compare({}, keeps=DECISION_KEEPS)
        self._insist_on(contents, DECISION_KEEPS, facts)

    def _refuse(self, line: str, function: Any, *arguments: Any, facts: Facts) -> None:
        """A call that must raise ValueError and leave no trace."""
        returned, other_error = self.refused(facts)
        contents = self._contents()
        self.log.refuse(REFUSES, line, function, *arguments, returned=returned, other_error=other_error, **facts)
        self._compare(facts, keeps=REFUSAL_KEEPS)
        self._insist_on(contents, REFUSAL_KEEPS, facts)

    def _contents(self) -> set[tuple[Device, Any]]:
        """The contents that can be had without computing them, where the allocators are refimpl's."""
        allocators = {device: getattr(self.manager, f"{device.name.lower()}_allocator", None) for device in Device}
        return {
            (device, key)
            for device, allocator in allocators.items()
            if isinstance(allocator, CachedBlockAllocator)
            for key in asked(lambda allocator=allocator: list(allocator.get_block_hashes())) or ()
            if not isinstance(key, AnonymousKey)
        }

    def _insist_on(self, contents: set[tuple[Device, Any]], keeps: str, facts: Facts) -> None:
        """All of them can still be had: a block that is taken for another content and given back has lost its own."""
        kept = contents <= self._contents()
        fault = None if kept else self.fault("forgotten", facts)
        should, but = "what was in the cache should still be there", "some of it is gone"
        self.log.hold(keeps, kept, should, but, fault, **facts)

    def _statuses(self) -> dict[str, SequenceStatus]:
        return {
            self._seq_name(key, i): seq.status for key, group in self.groups.items() for i, seq in enumerate(group.seqs)
        }

    def _insist_on_statuses(self, before: dict[str, SequenceStatus], keeps: str) -> None:
        """No status has changed; that none has is no merit of its own, since whoever does nothing changes nothing."""
        for name, status in self._statuses().items():
            if status is not before[name]:
                evidence = {"seq": name, "status": show(status)}
                self.log.expect(keeps, f"{name}.status", status, before[name], "status-changed", **evidence)

    def _call(self, line: str, function: Any, *arguments: Any, facts: Facts) -> Any:
        return self.log.call(line, function, *arguments, raises=self.raised(facts), **facts)

    def _compare(self, facts: Facts, keeps: str = "") -> None:
        seqs = [(self._seq_name(key, i), seq) for key, group in self.groups.items() for i, seq in enumerate(group.seqs)]
        self.comparison.state(seqs, facts, keeps)

    def _request(self, number: int, num_tokens: int, num_seqs: int, text: int) -> SequenceGroup:
        prompt = [_token(text, position, 0) for position in range(num_tokens)]
        seqs = [Sequence(100 * number + i, prompt, self.block_size) for i in range(num_seqs)]
        return SequenceGroup(str(number), seqs)

    def _seq_name(self, key: Any, i: int) -> str:
        return f"{self.names[key]}.seqs[{i}]"

    def _is_on(self, device: Device, seq: Sequence) -> bool:
        table = self.account.tables.get(seq.seq_id, [])
        return bool(table) and table[0].device is device

    def _moves(self, verb: str) -> tuple[Device, SequenceStatus]:
        return (GPU, SequenceStatus.RUNNING) if verb == "swap_out" else (CPU, SequenceStatus.SWAPPED)

    def _set_status(self, seqs: Iterable[Sequence], status: SequenceStatus) -> None:
        for seq in seqs:
            seq.status = status


def _token(text: int, position: int, other: int) -> int:
    """The token at this position of a text; `other` for one that the text does not have there."""
    return 1000 * (text + 1) + position + 500 * other


def _prompt(num_tokens: int, num_seqs: int, text: int, with_text: bool) -> str:
    """A request as the learner reads it: its prompt's tokens, its sequences, and which text it is where that counts."""
    several = f", num_seqs={num_seqs}" if num_seqs > 1 else ""
    return f"request(num_tokens={num_tokens}{several}{f', text={text}' if with_text else ''})"
