"""04-computed: what need not be computed again.

The account knows which block numbers hold which tokens, and which of those have been computed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations, takewhile
from typing import Any

from refimpl.block_manager import BlockSpaceManager
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, counted, equal, show
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

Tokens = tuple[int, ...]
Numbers = list[int]

NINE = "1 2 3 4 5 6 7 8 9"  # tokens
SHORT = {
    "append": "append_slots",
    "mark": "mark_blocks_as_computed",
    "hits": "get_common_computed_block_ids",
}

HITS = "a sequence's hits are its leading computed blocks"
LEAVES_ONE = "the last block of a table never counts"
COMMON = "hits are common when they are every sequence's"
NO_TABLE = "a sequence without a block table has no hits"
CACHING_OFF = "without prefix caching nothing counts as computed"
ONLY_READS = "tables and free blocks stay as they are"


@dataclass(frozen=True, slots=True)
class Marking:
    """A sequence at the marking.

    Args:
        full: the number of its full blocks.
        of_prompt: the same of its prompt alone.
        is_first: whether it stands first in its group.
        runs: whether its status is RUNNING.
    """

    full: int
    of_prompt: int
    is_first: bool
    runs: bool


# How many blocks of a table each thought about marking takes for computed. None is all of them; "" is right.
MARKED: dict[str, Callable[[Marking], int | None]] = {
    "": lambda seq: seq.full,
    "last-full-block-not-marked": lambda seq: max(seq.full - 1, 0),
    "partial-block-marked": lambda seq: None,
    "prompt-only-marked": lambda seq: seq.of_prompt,
    "one-sequence-marked": lambda seq: seq.full if seq.is_first else 0,
    "running-only-marked": lambda seq: seq.full if seq.runs else 0,
}


class _ComputedWorld(World):
    """A manager beside an account of which block numbers hold which tokens, and which of those have been computed.

    `computed` holds what each entry of MARKED would have marked: what the learner's answer equals tells which thought
    was at work.
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.block_size, self.total = setup["block_size"], setup["num_gpu_blocks"]
        self.caching = setup["caching"] == 1
        self.names = Names()
        self.asked = False  # before the first question nothing is compared, so that each stub is told as a stub
        self.seqs: dict[str, Sequence] = {}
        self.group_of: dict[str, tuple[str, SequenceGroup]] = {}
        self.tables: dict[str, Numbers] = {}  # name -> block numbers, while it has a table
        self.tokens_in: dict[int, Tokens] = {}  # block number -> the tokens up to its end
        self.computed: dict[str, set[int]] = {thought: set() for thought in MARKED}
        line = f"BlockSpaceManager({self.block_size}, {self.total}, 0, enable_caching={self.caching})"
        sizes = f"{counted(self.total, 'block')} of {counted(self.block_size, 'token')}"
        watermark = 0.01  # of so few blocks it reserves none
        arguments = self.block_size, self.total, 0, watermark, self.caching
        self.manager = log.call(f"manager = {line}    # {sizes}", subject, *arguments)

    @property
    def num_free(self) -> int:
        """Blocks that no table holds."""
        return self.total - len({number for table in self.tables.values() for number in table})

    def choices(self) -> Iterable[Operation]:
        return filter(self.possible, self._wishes())

    def _wishes(self) -> Iterable[Operation]:
        new = self.names.new_key()
        starts = {(1,), (1, 2), (1, 2, 3, 4), (5, 6), (1, 2, 7)}
        starts |= {(*self.seqs[name].get_token_ids(), 8) for name in self.tables}
        starts |= {tuple(self.seqs[name].get_token_ids()) for name in list(self.seqs)[-3:]}
        yield from (("allocate", new, *tokens) for tokens in sorted(starts))
        for key in [key for key, name in self.names.items() if name in self.tables]:
            yield from [("append_slots", key, 3), ("append_slots", key, 4), ("free", key), ("fork", new, key)]
            yield from [("mark_blocks_as_computed", key)] * 3
            yield from [("get_common_computed_block_ids", key)] * 2
            yield "forget", key, 0
            yield "finish", key
        yield from (("again", key) for key in self.names)
        keys = list(self.names)
        together = [*list(combinations(keys, 2))[-4:], *list(combinations(keys, 3))[-2:]]
        yield from (("get_common_computed_block_ids", *some) for some in together)

    def possible(self, operation: Operation) -> bool:
        verb, key, *arguments = operation
        if verb == "allocate":
            fits = len(range(0, len(arguments), self.block_size)) <= self.num_free
            return key not in self.names and fits
        if verb == "again":
            return key in self.names and self._may_come_back(self.names[key])
        if verb == "fork":
            return key not in self.names and arguments[0] in self.names and self.names[arguments[0]] in self.tables
        if verb == "get_common_computed_block_ids":
            return all(other in self.names for other in (key, *arguments))
        if key not in self.names or (verb == "append_slots" and not self._may_grow(self.names[key])):
            return False
        if verb == "forget":
            return self._marked(self.names[key])[arguments[0] :][:1] == [True]
        return verb == "mark_blocks_as_computed" or self.names[key] in self.tables

    def _may_grow(self, name: str) -> bool:
        return self.num_free > 0 and self.seqs[name].status is SequenceStatus.RUNNING

    def _may_come_back(self, name: str) -> bool:
        seq, (_, group) = self.seqs[name], self.group_of[name]
        alone = group.get_seqs() == [seq] and seq.status is SequenceStatus.RUNNING
        return alone and name not in self.tables and seq.n_blocks <= self.num_free

    def perform(self, operation: Operation) -> None:
        verb, key, *arguments = operation
        if verb == "get_common_computed_block_ids":
            self._common([self.names[other] for other in (key, *arguments)])
        elif verb == "allocate":
            self._allocate(self.names.add(key), tuple(arguments))
        elif verb == "fork":
            self._fork(self.names[arguments[0]], self.names.add(key))
        else:
            acts: dict[str, Callable[..., None]] = {"append_slots": self._append, "free": self._free}
            acts |= {"mark_blocks_as_computed": self._mark, "forget": self._forget}
            acts |= {"finish": self._finish, "again": self._again}
            acts[verb](self.names[key], *arguments)

    def _allocate(self, name: str, tokens: Tokens) -> None:
        seq = Sequence(len(self.seqs), tokens, self.block_size)
        group = SequenceGroup(name, [seq])
        self.seqs[name], self.group_of[name] = seq, (f"group_{name}", group)
        line = f"manager.allocate(group_{name})    # {name}, prompt {list(tokens)}"
        self.log.call(line, self.manager.allocate, group)
        seq.status = SequenceStatus.RUNNING
        self.tables[name] = []
        self._read_tables()

    def _again(self, name: str) -> None:
        """It was preempted, and is let in once more."""
        group_name, group = self.group_of[name]
        self.seqs[name].status = SequenceStatus.WAITING
        line = f"manager.allocate({group_name})    # {name} waits again, and is let in"
        self.log.call(line, self.manager.allocate, group, raises=(ValueError, "table-made-up"), name=name)
        self.seqs[name].status = SequenceStatus.RUNNING
        self.tables[name] = []
        self._read_tables()

    def _fork(self, parent: str, child: str) -> None:
        seq = self.seqs[parent].fork(len(self.seqs))
        group_name, group = self.group_of[parent]
        group.add(seq)
        self.seqs[child], self.group_of[child] = seq, (group_name, group)
        line = f"manager.fork({parent}, {child})    # {child} joins {group_name}"
        self.log.call(line, self.manager.fork, self.seqs[parent], seq)
        self.tables[child] = []
        self._read_tables()

    def _append(self, name: str, token: int) -> None:
        seq = self.seqs[name]
        seq.append_token_id(token)
        line = f"manager.append_slots({name})    # now {seq.get_token_ids()}"
        self.log.call(line, self.manager.append_slots, seq)
        self._read_tables()

    def _free(self, name: str) -> None:
        self.log.call(f"manager.free({name})", self.manager.free, self.seqs[name])
        del self.tables[name]

    def _finish(self, name: str) -> None:
        """It has ended, and is freed later."""
        self.seqs[name].status = SequenceStatus.FINISHED_STOPPED
        self.log.note(f"{name}.status = SequenceStatus.FINISHED_STOPPED")

    def _forget(self, name: str, index: int) -> None:
        """A block's content is gone, as if the cache had given it up and somebody asked for the text again."""
        self.manager.block_tables[self.seqs[name].seq_id][index].computed = False
        self._discard(self.tables[name][index])
        self.log.note(f"manager.block_tables[{name}.seq_id][{index}].computed = False")

    def _marked(self, name: str) -> list[bool]:
        """The flags of a table's blocks; none in a design that keeps no such tables."""
        tables = getattr(self.manager, "block_tables", None)
        blocks = tables.get(self.seqs[name].seq_id, []) if isinstance(tables, dict) else []
        return [bool(block.computed) for block in blocks if hasattr(block, "computed")]

    def _discard(self, number: int) -> None:
        for computed in self.computed.values():
            computed.discard(number)

    def _read_tables(self) -> None:
        """A block that holds other tokens than before has not been computed."""
        for name in self.tables:
            seq = self.seqs[name]
            self.tables[name] = [int(number) for number in self.manager.get_block_table(seq)]
            tokens = tuple(seq.get_token_ids())
            for index, number in enumerate(self.tables[name]):
                content = tokens[: (index + 1) * self.block_size]
                before = self.tokens_in.get(number, ())
                self.tokens_in[number] = content
                grown_in_place = before == content[: len(before)] and len(before) > index * self.block_size
                if not grown_in_place:
                    self._discard(number)

    def _mark(self, name: str) -> None:
        group_name, group = self.group_of[name]
        family = [other for other, (other_group, _) in self.group_of.items() if other_group == group_name]
        line = f"manager.mark_blocks_as_computed({group_name})"
        self.log.call(line, self.manager.mark_blocks_as_computed, group, **self._without_table(family))
        for other in family:
            table, seq = self.tables.get(other, []), self.seqs[other]
            marking = Marking(
                full=seq.get_len() // self.block_size,
                of_prompt=seq.get_prompt_len() // self.block_size,
                is_first=other == family[0],
                runs=seq.status is SequenceStatus.RUNNING,
            )
            for thought, marked in MARKED.items():
                self.computed[thought].update(table[: marked(marking)])
            if not self.caching:
                should, but, did = f"no block of {other} should be marked", "one is", "marks a block"
                marked_none = not any(self._marked(other))
                self.log.hold(CACHING_OFF, marked_none, should, but, "counts-without-caching", did=did)
        if self.asked:
            self._check_only_reads()

    def _without_table(self, names: list[str]) -> dict[str, Any]:
        """What an error tells where one of these sequences has no block table."""
        without = [name for name in names if name not in self.tables]
        return {"raises": (KeyError, "table-taken-for-granted"), "name": without[0]} if without else {}

    def _common(self, names: list[str]) -> None:
        line, ask = f"manager.get_common_computed_block_ids([{', '.join(names)}])", self.manager
        seqs = [self.seqs[name] for name in names]
        got = self.log.call(line, ask.get_common_computed_block_ids, seqs, **self._without_table(names))
        self.asked = True
        hits = [self._hits(name) for name in names]
        expected = _common_prefix(hits) if self.caching else []
        numbers = list(got) if isinstance(got, list | tuple) else None
        seen = show([getattr(item, "block_number", item) for item in got] if isinstance(got, list) else got)
        block = next((number for number in numbers or [] if number not in expected), "")
        evidence = {"names": " and ".join(names), "first": names[0], "block": block, "expected": expected, "got": seen}
        evidence["did"] = f"returned {seen}"
        self.log.hold(
            self._property(names, expected),
            numbers is not None and len(numbers) == len(expected) and all(map(equal, numbers, expected)),
            f"it should return {expected}",
            f"it returned {seen}",
            self._fault(got, numbers, names, hits, expected),
            **evidence,
        )
        self._check_only_reads()

    def _property(self, names: list[str], expected: Numbers) -> str:
        if not self.caching:
            return CACHING_OFF
        if any(name not in self.tables for name in names):
            return NO_TABLE
        if len(names) > 1:
            return COMMON
        return LEAVES_ONE if expected != self._hits(names[0], last_too=True) else HITS

    def _hits(self, name: str, thought: str = "", last_too: bool = False) -> Numbers:
        """The leading computed blocks of a table by one of the accounts."""
        table = self.tables.get(name, [])
        return list(takewhile(self.computed[thought].__contains__, table if last_too else table[:-1]))

    def _fault(
        self, got: Any, numbers: list[Any] | None, names: list[str], hits: list[Numbers], expected: Numbers
    ) -> str | None:
        """The one thought that explains the answer; None where none does, or several."""
        if got is None:
            return "none-for-no-hits" if not expected else "hits-not-returned"
        if numbers is None:
            return None
        if not self.caching:
            return "counts-without-caching"
        if numbers and all(hasattr(block, "block_number") for block in numbers):
            return "blocks-instead-of-numbers"
        predicted = {thought: _common_prefix([self._hits(name, thought) for name in names]) for thought in MARKED}
        predicted |= {
            "last-block-counts": _common_prefix([self._hits(name, last_too=True) for name in names]),
            "one-sequence-speaks-for-all": hits[0],
            "no-hits-ignored": _common_prefix([hit for hit in hits if hit]),
            "shortest-is-not-common": min(hits, key=len),
            "order-lost": sorted(expected),
        }
        explains = [thought for thought, answer in predicted.items() if answer != expected and answer == numbers]
        if not explains and numbers != expected and numbers in self._beyond_a_gap(names):
            found, due = self._found_afterwards()
            return "beyond-a-gap" if found == due else None
        if len(explains) != 1 or (explains[0] in MARKED and not self._marks_like(explains[0], numbers)):
            return None
        return explains[0]

    def _beyond_a_gap(self, names: list[str]) -> list[Numbers]:
        """What is found by who leaves out a block that is not computed, or looks for the last one that is."""
        tables = [self.tables.get(name, [])[:-1] for name in names]
        computed = [[number for number in table if number in self.computed[""]] for table in tables]
        ends = [1 + table.index(found[-1]) if found else 0 for table, found in zip(tables, computed, strict=True)]
        up_to = [table[:end] for table, end in zip(tables, ends, strict=True)]
        return [_common_prefix(computed), _common_prefix(up_to)]

    def _marks_like(self, thought: str, numbers: list[Any]) -> bool:
        """Whether the flags are what this thought would make of them, and are not simply never set."""
        for name, table in self.tables.items():
            if self._marked(name) not in ([], [number in self.computed[thought] for number in table]):
                return False
        return bool(numbers) or bool(self._found_afterwards()[0])

    def _found_afterwards(self) -> tuple[Numbers, Numbers]:
        """What is found of a single prompt of two full blocks and a token, and what is due: asked when this is over."""
        for name in self.tables:
            self.manager.free(self.seqs[name])
        seq = Sequence(len(self.seqs), range(90, 91 + 2 * self.block_size), self.block_size)
        if seq.n_blocks > self.total:
            return [], []
        group = SequenceGroup("asked afterwards", [seq])
        self.manager.allocate(group)
        seq.status = SequenceStatus.RUNNING
        self.manager.mark_blocks_as_computed(group)
        found = self.manager.get_common_computed_block_ids([seq])
        return list(found) if isinstance(found, list | tuple) else [], self.manager.get_block_table(seq)[:2]

    def _check_only_reads(self) -> None:
        for name, table in self.tables.items():
            now = self.manager.get_block_table(self.seqs[name])
            self.log.expect(ONLY_READS, f"the block table of {name}", now, table)
        free = self.log.ask("manager.get_num_free_gpu_blocks()", self.manager.get_num_free_gpu_blocks)
        self.log.expect(ONLY_READS, "the number of free blocks", free, self.num_free)


def _common_prefix(lists: list[Numbers]) -> Numbers:
    """What all lists begin with."""
    columns = zip(*lists, strict=False)
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]


def _manager_sizes(rng: random.Random) -> Setup:
    return {
        "block_size": rng.choice((1, 2, 2, 4)),
        "num_gpu_blocks": rng.choice((4, 6, 8, 12)),
        "caching": rng.choice((1, 1, 1, 1, 1, 2)),
    }


def _manager_history(block_size: int, *operations: str, caching: bool = True, num_gpu_blocks: int = 8) -> History:
    """Operations such as "allocate a 1 2 3", "append a 4", "mark a", "hits a b", "fork b a", "forget a 0"."""
    setup = {"block_size": block_size, "num_gpu_blocks": num_gpu_blocks, "caching": 1 if caching else 2}
    spelled_out = (" ".join([SHORT.get(verb, verb), *rest]) for verb, *rest in map(str.split, operations))
    return History.read(setup, *spelled_out)


STEP = Step(
    exercise_id="04-computed",
    title="what need not be computed again",
    points=3,
    subject="BlockSpaceManager",
    writes=("mark_blocks_as_computed", "get_common_computed_block_ids"),
    needs=("allocate", "append_slots", "fork", "free", "get_block_table", "get_num_free_gpu_blocks"),
    reference=(BlockSpaceManager.mark_blocks_as_computed, BlockSpaceManager.get_common_computed_block_ids),
    properties=(HITS, LEAVES_ONE, COMMON, NO_TABLE, CACHING_OFF, ONLY_READS),
    misconceptions={
        "last-block-counts": "Something must be left to compute, or there is no answer to sample the next token "
        "from: the last block of a table never counts, and yours returned {got} for the whole of {first}.",
        "last-full-block-not-marked": "Every full block is marked, the last full one too: after the marking "
        "{names} should find {expected}, and finds {got}.",
        "partial-block-marked": "A block with empty slots will change, so only full ones are marked: yours "
        "counted block {block} as computed before its last token was.",
        "prompt-only-marked": "A generated token's keys and values are as good as a prompt's: count full blocks "
        "over the whole sequence, so that {names} finds {expected} and not {got}.",
        "one-sequence-marked": "Every sequence of the group has computed its blocks, not the first alone, and one "
        "without a block table is no end of the group: {names} should find {expected}, and finds {got}.",
        "running-only-marked": "What is in memory is in memory, whatever has become of a sequence: as long as it has a "
        "block table its full blocks are marked, so {names} should find {expected}, and finds {got}.",
        "beyond-a-gap": "Hits end at the first block that is not computed, since attention needs every key and "
        "value before a token: {names} should find {expected}, and finds {got}.",
        "table-taken-for-granted": "A sequence may have no block table, when it has finished or has not started: "
        "`{name}` has none, so it has no blocks, and that is no error.",
        "table-made-up": "To look for a block table is not to make one: `{name}` had none, has an empty one since you "
        "asked, and cannot be allocated any more, which ended in {error}.",
        "one-sequence-speaks-for-all": "Common is what every sequence has: yours returned {got}, the hits of "
        "{first} alone, for {names}.",
        "no-hits-ignored": "A sequence without hits has to compute from its first token, so there is nothing in "
        "common: for {names} return [], and yours returned {got}.",
        "shortest-is-not-common": "The shortest list is not what all have in common: compare the blocks one by one "
        "from the front, since {names} part where their blocks differ, and yours returned {got}.",
        "blocks-instead-of-numbers": "The model runner gets block numbers and knows no block objects: return "
        "{expected}.",
        "none-for-no-hits": "No hits is a list without entries: the caller asks for its length, and yours "
        "returned None.",
        "hits-not-returned": "The caller wants the list of block numbers, {expected}, and yours returned None.",
        "order-lost": "The order is the order of the text: the blocks of {names} are {expected} from the front, "
        "and yours returned {got}.",
        "counts-without-caching": "Without prefix caching no block is ever found again, so nothing is marked and "
        "nothing is a hit: `enable_caching` is False, and yours {did}.",
    },
    world=_ComputedWorld,
    examples=(
        _manager_history(4, f"allocate a {NINE}", "mark a", f"allocate b {NINE}", "hits b"),
        _manager_history(4, f"allocate a {NINE[:-2]}", "mark a", f"allocate b {NINE[:-2]}", "hits b"),
        _manager_history(2, "allocate a 1 2 3", "mark a", "append a 4", "allocate b 1 2 3 4 5", "hits b"),
        _manager_history(1, "allocate a 1", "append a 2", "append a 3", "mark a", "allocate b 1 2 3 4", "hits b"),
        _manager_history(1, "allocate a 1 2", "fork b a", "free a", "mark a", "allocate c 1 2 5", "hits c"),
        _manager_history(1, "allocate a 1 2", "finish a", "mark a", "allocate b 1 2 5", "hits b"),
        _manager_history(2, "allocate a 1 2 3 4 5", "allocate b 1 2 7", "mark a", "mark b", "hits a b"),
        _manager_history(2, "allocate a 1 2 3 4 5", "allocate b 7 8 9", "mark a", "mark b", "hits a b"),
        _manager_history(2, "allocate a 1 2 3 4 5", "allocate b 7 8 9", "mark a", "hits b a"),
        _manager_history(
            *(1, "allocate a 1 2", "allocate b 1 2", "allocate c 7 8", "mark a", "hits a b c", "hits a c b")
        ),
        _manager_history(1, "allocate a 1 2 3", "mark a", "forget a 0", "hits a"),
        _manager_history(1, "allocate a 1 2 3", "free a", "allocate b 7 8 9", "mark b", "hits b", num_gpu_blocks=3),
        _manager_history(2, "allocate a 1 2 3 4 5", "mark a", "hits a", caching=False),
        _manager_history(2, "allocate a 1 2 3", "mark a", "free a", "mark a", "hits a", "again a"),
    ),
    setups=_manager_sizes,
)
