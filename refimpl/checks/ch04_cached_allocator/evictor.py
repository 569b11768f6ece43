"""04-evictor: which content is given up.

The account knows in which order free blocks must go; what stands in the learner's dictionaries it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from refimpl.block import Device, PhysicalTokenBlock
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, counted, equal, show
from refimpl.checks.thoughts import only_one
from refimpl.evictor import LRUEvictor, PlainEvictor

OLDEST = "the block whose last use is longest ago goes first"
TAIL = "among equally old blocks the one that covers most tokens goes first"
FIRST_FREED = "among those the one freed first goes first"
A_VICTIM = "evict returns a block that is here"
IS_GONE = "the victim is here no longer, and nobody's yet"
NOT_COMPUTED = "the victim no longer counts as computed"
OTHERS_STAY = "all other blocks stay as they are"
NONE_LEFT = "an empty evictor refuses with ValueError"


@dataclass(slots=True, eq=False)
class Content:
    """One block's content in the account, whether it is computed, and how many owners it has."""

    key: int | None  # None for an anonymous one
    hashed: int  # tokens that its key covers
    number: int = -1  # of the block that holds it
    stamp: float = -1  # of its last use
    computed: bool = False
    owners: int = 0
    turn: int = 0  # of being freed

    @property
    def rank(self) -> tuple[float, int, int]:
        """Smallest is given up first."""
        return self.stamp, -self.hashed, self.turn

    @property
    def said(self) -> str:
        """The content in words."""
        return "no key" if self.key is None else f"key {self.key}"


Waiting = dict[str, Content]
Choice = Callable[[Waiting], set[str]]  # of those that wait, the ones of which any may go first


def _smallest(rank: Callable[[Content], Any]) -> Choice:
    """Those whose rank is smallest."""

    def choose(waiting: Waiting) -> set[str]:
        smallest = min(map(rank, waiting.values()))
        return {name for name, content in waiting.items() if rank(content) == smallest}

    return choose


def _not_newer(waiting: Waiting) -> set[str]:
    """The longest of those in front that are not newer than the first."""
    first = next(iter(waiting.values()))
    front = dict(takewhile(lambda item: item[1].stamp <= first.stamp, waiting.items()))
    return {max(front, key=lambda name: front[name].hashed)}


def _until_newer(waiting: Waiting) -> set[str]:
    """The right one of those in front of the first that is newer than the best so far."""
    best, *others = waiting
    for name in others:
        if waiting[name].stamp > waiting[best].stamp:
            break
        best = min(best, name, key=lambda name: waiting[name].rank)
    return {best}


def _longer(waiting: Waiting) -> set[str]:
    """The right one, or the longest if they are longer."""
    right = min(waiting, key=lambda name: waiting[name].rank)
    most = max(content.hashed for content in waiting.values())
    return {right} | {name for name, content in waiting.items() if content.hashed == most > waiting[right].hashed}


THOUGHTS: tuple[tuple[str, Choice], ...] = (
    ("first-freed-goes-first", _smallest(lambda content: content.turn)),
    ("first-freed-goes-first", _not_newer),
    ("first-freed-goes-first", _until_newer),
    ("last-freed-goes-first", _smallest(lambda content: -content.turn)),
    ("newest-goes-first", _smallest(lambda content: -content.stamp)),
    ("tail-before-age", _longer),
    ("tail-before-age", _smallest(lambda content: (-content.hashed, content.turn))),
    ("tail-before-age", _smallest(lambda content: (-content.hashed, -content.turn))),
    ("not-computed-goes-first", _smallest(lambda content: (content.computed, *content.rank))),
    ("never-is-not-oldest", _smallest(lambda content: (content.stamp < 0, *content.rank))),
    ("never-is-not-oldest", _smallest(lambda content: (abs(content.stamp), *content.rank))),
    ("whole seconds", _smallest(lambda content: (int(content.stamp), *content.rank[1:]))),
    ("prefix-goes-first", _smallest(lambda content: (content.stamp, content.hashed))),
    ("tie-goes-by-freeing", _smallest(lambda content: (content.stamp, content.turn))),
    ("tie-goes-by-freeing", _smallest(lambda content: (content.stamp, -content.turn))),
    ("equals-in-the-wrong-order", _smallest(lambda content: (content.stamp, -content.hashed))),
)

EXAMPLES = (
    History.read({}, "add a 3 4", "add b 1 4", "add c 5 4", "add d 2 4", "evict"),
    History.read({}, "add a 2 4", "add b 3 4", "add c 1 4", "evict"),
    History.read({}, "add a 7 8", "add b 7 12", "add c 7 4", "add d 7 8", "evict"),
    History.read({}, "add a 1 4", "add b 2 4096", "add c 2 4", *["evict"] * 3),
    History.read({}, "add a 2 8", "add b 2 8", "add c 2 8", *["evict"] * 3),
    History.read({}, "add a 5 4", "evict", "evict"),
    History.read({}, "add a 3 4", "add b 2 4", "remove a", "add a 1 4", "evict"),
    History.of({}, ("add", "a", 0, 4), ("add", "b", -1, 4), ("add", "c", 1, 4), ("evict",)),
    History.of({}, ("add", "a", 3, 131072), ("add", "b", 2.875, 4), ("evict",)),  # a long text, an eighth of a second
    History.of({}, ("add", "a", 2.3125, 8), ("add", "b", 2.28125, 4), ("evict",)),
    History.read({}, "add a 2 4", "add b 3 4 new", "evict"),
)


class _EvictorWorld(World):
    """An evictor beside a list of who waits in it and since when."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.names, self.turn = Names(), 0
        self.blocks: dict[str, PhysicalTokenBlock] = {}
        self.waiting: dict[str, Content] = {}  # the one freed first in front
        self.left = set(range(len(THOUGHTS)))  # those that would have chosen every victim so far
        self.evictor = log.call("evictor = LRUEvictor()", subject)

    def choices(self) -> Iterable[Operation]:
        new = self.names.new_key()
        yield from (("add", new, stamp, hashed) for stamp in (1, 2, 3) for hashed in (4, 8, 4096))
        for key, name in self.names.items():
            yield ("remove", key) if name in self.waiting else ("add", key, 2, 8)
        yield from [("evict",)] * (3 + 3 * len(self.waiting))

    def possible(self, operation: Operation) -> bool:
        verb, *arguments = operation
        if verb == "evict":
            return True
        is_here = arguments[0] in self.names and self.names[arguments[0]] in self.waiting
        return is_here if verb == "remove" else not is_here

    def perform(self, operation: Operation) -> None:
        super().perform(operation)
        self._check_others()

    def _add(self, key: Hashable, stamp: float, hashed: int, state: str = "computed") -> None:
        name = self.names[key] if key in self.names else self.names.add(key)
        block = self.blocks.setdefault(name, PhysicalTokenBlock(Device.GPU, len(self.blocks), 4))
        block.block_hash, block.computed = _key_of(name), state == "computed"
        block.last_accessed, block.num_hashed_tokens = stamp, hashed
        self.turn += 1
        self.waiting[name] = Content(None, hashed, stamp=stamp, computed=block.computed, turn=self.turn)
        line = f"evictor.add({name})    # last_accessed {stamp}, num_hashed_tokens {hashed}"
        line += "" if block.computed else ", not computed"
        self.log.call(line, self.evictor.add, block)

    def _remove(self, key: Hashable) -> None:
        name = self.names[key]
        del self.waiting[name]
        got = self.log.call(f"evictor.remove({name}.block_hash)", self.evictor.remove, _key_of(name))
        self.log.hold(OTHERS_STAY, got is self.blocks[name], f"it should return `{name}`", f"it returned {show(got)}")

    def _evict(self) -> None:
        if not self.waiting:
            thoughts = {"returned": "empty-answers", "other_error": "empty-other-error"}
            self.log.refuse(NONE_LEFT, "evictor.evict()", self.evictor.evict, **thoughts)
            return
        expected = min(self.waiting, key=lambda name: self.waiting[name].rank)
        refusal = (ValueError, "refuses-too-early")
        here = counted(len(self.waiting), "block")
        victim = self._named(self.log.call("evictor.evict()", self.evictor.evict, raises=refusal, here=here))
        self._check_order(expected, victim)
        del self.waiting[victim]
        should, but = f"`{victim}` should not be in the evictor", "it still is"
        self.log.hold(IS_GONE, not self._is_here(victim), should, but, "still-here", victim=victim)
        block = self.blocks[victim]
        self.log.expect(IS_GONE, f"{victim}.ref_count", block.ref_count, 0)
        self.log.expect(IS_GONE, f"{victim}.block_number", block.block_number, list(self.blocks).index(victim))
        self.log.expect(NOT_COMPUTED, f"{victim}.computed", block.computed, False, "still-computed", victim=victim)

    def _named(self, got: Any) -> str:
        """The name of the block that was returned."""
        name = next((name for name in self.waiting if self.blocks[name] is got), None)
        thought = "victim-not-returned" if got is None else None
        if any(equal(got, _key_of(name)) or equal(got, block.block_number) for name, block in self.blocks.items()):
            thought = "key-instead-of-block"
        should, but = "it should return one of the blocks that are here", f"it returned {show(got)}"
        self.log.hold(A_VICTIM, name is not None, should, but, thought, got=show(got))
        return str(name)

    def _check_order(self, expected: str, victim: str) -> None:
        if len(self.waiting) == 1:
            return
        a, b = self.waiting[expected], self.waiting[victim]
        evidence = {"victim": victim, "stamp": b.stamp, "hashed": b.hashed}
        evidence |= {"right": expected, "right_stamp": a.stamp, "right_hashed": a.hashed}
        self.left = {i for i in self.left if victim in THOUGHTS[i][1](self.waiting)}
        thought = None if b is a or self.replaying else self._thought()
        for name, holds in ((OLDEST, b.stamp == a.stamp), (TAIL, b.hashed == a.hashed), (FIRST_FREED, b is a)):
            self.log.hold(name, holds, f"it should be `{expected}`", f"it is `{victim}`", thought, **evidence)

    def _is_here(self, name: str) -> bool:
        return self.log.ask(f"{name}.block_hash in evictor", lambda: _key_of(name) in self.evictor) is True

    def _thought(self) -> str | None:
        """The one thought that explains every victim so far, and all those in the examples."""
        left = self.left
        for example in EXAMPLES:
            left = left & self.replayed(example)[0].left
        return only_one(THOUGHTS[i][0] for i in left)

    def _check_others(self) -> None:
        number = self.log.ask("evictor.num_blocks", lambda: self.evictor.num_blocks)
        self.log.expect(OTHERS_STAY, "the number of blocks in it", number, len(self.waiting))
        for name, waiting in self.waiting.items():
            block = self.blocks[name]
            self.log.hold(OTHERS_STAY, self._is_here(name), f"`{name}` should still be in the evictor", "it is not")
            now = (block.last_accessed, block.num_hashed_tokens, block.computed)
            what = f"what `{name}` says of itself (last_accessed, num_hashed_tokens, computed)"
            self.log.expect(OTHERS_STAY, what, now, (waiting.stamp, waiting.hashed, waiting.computed))


def _key_of(name: str) -> str:
    return f"key of {name}"


STEP = Step(
    exercise_id="04-evictor",
    title="which content is given up",
    points=2,
    subject="LRUEvictor",
    writes=("evict",),
    needs=("add", "remove", "num_blocks"),
    reference=(LRUEvictor.evict, PlainEvictor.evict),
    properties=(A_VICTIM, OLDEST, TAIL, FIRST_FREED, IS_GONE, NOT_COMPUTED, OTHERS_STAY, NONE_LEFT),
    misconceptions={
        "victim-not-returned": "Whoever calls `evict` is about to use the block, so return it: yours returned None.",
        "key-instead-of-block": "The caller needs the block itself, to write a new key on it: yours returned {got}.",
        "first-freed-goes-first": "How old a block is, its last use says and not the moment it was freed: "
        "`{right}` was last used at {right_stamp}, `{victim}` at {stamp}.",
        "last-freed-goes-first": "A cache is no stack: `{victim}` was freed last and last used at {stamp}, while "
        "`{right}` has been idle since {right_stamp} and is the one least missed.",
        "newest-goes-first": "The smallest `last_accessed` is the longest ago: you gave up `{victim}`, used at "
        "{stamp}, and kept `{right}`, used at {right_stamp}.",
        "tail-before-age": "Age comes first, and length decides among equals only: `{right}` was last used at "
        "{right_stamp}, before `{victim}` at {stamp}.",
        "never-is-not-oldest": "What was never used is least missed, and -1 is older than every time: `{right}` goes "
        "before `{victim}`, which was last used at {stamp}.",
        "not-computed-goes-first": "Age decides, be a block computed or not: `{right}` was last used at {right_stamp}, "
        "before `{victim}` at {stamp}.",
        "prefix-goes-first": "A prefix has to outlive its tail, which nobody finds without it: `{right}` covers "
        "{right_hashed} tokens and goes before `{victim}`, which covers {hashed}.",
        "tie-goes-by-freeing": "Among blocks last used at the same time the one that covers most tokens goes "
        "first, whenever it was freed: `{right}` covers {right_hashed}, `{victim}` {hashed}.",
        "equals-in-the-wrong-order": "Where age and length are equal the block freed first goes first, which is "
        "`{right}` and not `{victim}`.",
        "still-here": "A victim is not addressable any more: `{victim}` went out, and its key is still in the evictor.",
        "still-computed": "The victim's next content has not been computed by anybody: `{victim}.computed` must "
        "be False, or the next owner skips work that was never done.",
        "refuses-too-early": "An evictor gives up its last block too: there was {here} in it, and yours refused.",
        "empty-answers": "An evictor without a block has to say no: raise ValueError, or the caller goes on with "
        "a block that does not exist.",
        "empty-other-error": "The error for an empty evictor is ValueError, since that is what the allocator waits "
        "for: yours ended in {error}.",
    },
    world=_EvictorWorld,
    examples=EXAMPLES,
    setups=lambda rng: {},
)
