"""Chapter 04: same content, same block.

Beside the learner's objects stand four accounts: for which tokens a key was given, in which order free blocks must go,
whose content a block holds, and what has been computed. They know tokens, owners and stamps; of a key's value, of the
number of a new block and of what stands in the learner's dictionaries they know nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import combinations, takewhile
from numbers import Integral
from typing import Any

from refimpl.allocator import CachedBlockAllocator
from refimpl.block import Device, PhysicalTokenBlock
from refimpl.block_manager import BlockSpaceManager
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, equal, show
from refimpl.evictor import LRUEvictor, PlainEvictor
from refimpl.prefix_hash import NO_PREFIX, PrefixKeys
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

Tokens = tuple[int, ...]
Numbers = list[int]
_Extra = tuple[Hashable, ...]

VERBS = {
    "append": "append_slots",
    "mark": "mark_blocks_as_computed",
    "hits": "get_common_computed_block_ids",
}


NINE = "1 2 3 4 5 6 7 8 9"  # tokens


def _history(setup: Setup, *operations: str) -> History:
    """Operations such as "add a 3 4": the verb, the key of a thing, and numbers or the keys of other things."""
    words = (operation.split() for operation in operations)
    return History(setup, tuple((VERBS.get(verb, verb), *map(_argument, rest)) for verb, *rest in words))


def _argument(word: str) -> int | str:
    return int(word) if word.isdigit() else word


def _count(number: int, thing: str) -> str:
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"


A_KEY_EACH = "every block has a key, the partial last one too"
SAME_KEY = "equal tokens from position 0 on have equal keys"
OTHER_KEY = "different tokens from position 0 on have different keys"
EXTRA_KEYS = "extra keys are part of every key"
TOKENS_KEPT = "the tokens that were passed stay as they were"

MERSENNE = 2**61 - 1  # Python hashes whole numbers modulo this, so it hashes like 0
PIECES: tuple[Tokens, ...] = ((1, 2, 3, 4), (9, 9, 9, 9), (1,), (2, 1), (0,), (257,), (12, 3), (1, 23))
MOST_TOKENS = 12


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A block that has been given a key: the tokens up to its end, and where it was met."""

    tokens: Tokens
    extra: _Extra
    index: int
    call: Tokens  # all tokens of the call
    size: int  # of a block

    @property
    def content(self) -> tuple[Tokens, _Extra]:
        """What the key has to stand for."""
        return self.tokens, self.extra

    @property
    def own(self) -> Tokens:
        """The tokens in the block itself."""
        return self.tokens[self.index * self.size :]

    @property
    def before(self) -> Tokens:
        """The tokens in front of the block."""
        return self.tokens[: self.index * self.size]


class _KeysWorld(World):
    """Sequences of tokens, their keys compared with all that were given before."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.log, self.block_size = log, setup["block_size"]
        self.names = Names()
        self.seen: list[Tokens] = []
        self.key_of: dict[tuple[Tokens, _Extra], tuple[Any, _Keyed]] = {}
        self.given_for: dict[Any, _Keyed] = {}  # the learner's key -> the block that has it
        self.keys = log.call("keys = PrefixKeys()", subject)

    def choices(self) -> Iterable[Operation]:
        new = self.names.new_key()
        starts = {(), *self.seen[-4:]}
        longer = {start + piece for start in starts for piece in PIECES if len(start + piece) <= MOST_TOKENS}
        shorter = {tokens[:-1] for tokens in self.seen[-4:]}
        for tokens in sorted(longer | shorter):
            yield "of_tokens", new, tokens, ()
        for tokens in self.seen[-3:]:
            yield from (("of_tokens", new, tokens, extra) for extra in ((), ("adapter",), (1,), (1, 2), (2, 1)))

    def possible(self, operation: Operation) -> bool:
        return operation[1] not in self.names

    def perform(self, operation: Operation) -> None:
        _, key, tokens, extra = operation
        name = self.names.add(key)
        passed = list(tokens)
        extra_text = f", extra_keys={extra}" if extra else ""
        line = f"{name} = keys.of_tokens({passed}, block_size={self.block_size}{extra_text})"
        got = self.log.call(line, self.keys.of_tokens, passed, self.block_size, *([extra] if extra else []))
        keys = self._check_count(got, tokens, extra)
        self.log.expect(TOKENS_KEPT, "the list of tokens", passed, list(tokens))
        for index, block_key in enumerate(keys):
            block = _Keyed(tokens[: (index + 1) * self.block_size], extra, index, tokens, self.block_size)
            self._check_key(block_key, block)
        self.seen.append(tokens)

    def _check_count(self, got: Any, tokens: Tokens, extra: _Extra) -> list[Any]:
        """The keys as a list, one a block."""
        blocks = len(range(0, len(tokens), self.block_size))
        should = f"it should return a list of {_count(blocks, 'key')}"
        listed = hasattr(got, "__iter__") and not isinstance(got, str | bytes | Set | Mapping)
        thought = "keys-not-returned" if got is None else None
        self.log.hold(A_KEY_EACH, listed, should, f"it returned {show(got)}", thought)
        keys = list(got)
        thought = "partial-block-left-out" if len(keys) == len(tokens) // self.block_size else None
        if extra and len(keys) == len(range(0, len(tokens) + len(extra), self.block_size)):
            thought = "extra-keys-pass-for-tokens"
        evidence = {"tokens": list(tokens), "size": self.block_size, **_joined(tokens, extra)}
        evidence |= {"blocks": _count(blocks, "block"), "keys": _count(len(keys), "key")}
        self.log.hold(A_KEY_EACH, len(keys) == blocks, should, f"it returned {len(keys)}", thought, **evidence)
        return keys

    def _check_key(self, key: Any, block: _Keyed) -> None:
        self.log.hold(A_KEY_EACH, _is_hashable(key), "a key should be hashable", f"it is {show(key)}")
        if block.content in self.key_of:
            self._check_same(key, block, *self.key_of[block.content])
            return
        clash = self.given_for.get(key)
        about_extra = block.extra if clash is None else clash.extra != block.extra
        self.log.hold(
            EXTRA_KEYS if about_extra else OTHER_KEY,
            clash is None,
            f"block {block.index} should have a new key",
            f"it has that of {list(clash.tokens)}" if clash else "",
            self._clash(clash, block) if clash else None,
            **(_clash_evidence(clash, block) if clash else {}),
        )
        self.key_of[block.content] = key, block
        self.given_for[key] = block

    def _check_same(self, key: Any, block: _Keyed, known_key: Any, known: _Keyed) -> None:
        anew = known.call == block.call or not self._same_again(known, known_key)
        self.log.hold(
            SAME_KEY,
            equal(key, known_key),
            f"block {block.index} should have the key that {list(block.tokens)} had before",
            "it has another",
            "every-call-anew" if anew else "what-follows-counts",
            tokens=list(block.tokens),
            one=list(known.call),
            other=list(block.call),
            number=_count(len(block.tokens), "token"),
        )

    def _same_again(self, known: _Keyed, known_key: Any) -> bool:
        """Whether the very same call gives the block its key once more."""
        extra = [known.extra] if known.extra else []
        again = self.log.ask("keys.of_tokens(…)", lambda: list(self.keys.of_tokens(known.call, known.size, *extra)))
        return equal(again[known.index] if known.index < len(again) else None, known_key)

    def _clash(self, one: _Keyed, other: _Keyed) -> str | None:
        """The misconception behind one key for two contents."""
        if one.extra != other.extra:
            if one.tokens == other.tokens:
                in_one_block = one.index and self._first_differs(one, other)
                return "extra-keys-in-one-block-only" if in_one_block else "extra-keys-forgotten"
            return "extra-keys-pass-for-tokens" if (*one.extra, *one.tokens) == (*other.extra, *other.tokens) else None
        if one.own == other.own and one.before != other.before:
            if not one.before and equal(self.key_of[other.before, other.extra][0], NO_PREFIX):
                return "number-of-no-prefix"
            one_back = other.index == one.index > 1 and one.before[-one.size :] == other.before[-one.size :]
            return "one-block-back" if one_back else "block-alone"
        return _look_alike(one, other)

    def _first_differs(self, one: _Keyed, other: _Keyed) -> bool:
        """Whether the first blocks of two sequences with equal later keys have keys of their own."""
        firsts = [(block.tokens[: self.block_size], block.extra) for block in (one, other)]
        keys = [self.key_of[first][0] for first in firsts if first in self.key_of]
        return len(keys) == 2 and not equal(*keys)


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _joined(tokens: Tokens, extra: _Extra) -> dict[str, Any]:
    """What a block with extra keys looks like when those pass for tokens."""
    return {"bare": list(tokens), "extras": extra, "joined": [*extra, *tokens]}


def _clash_evidence(one: _Keyed, other: _Keyed) -> dict[str, Any]:
    """What the sentences about one key for two contents may speak of."""
    more_extra = max(one, other, key=lambda block: len(block.extra))
    evidence = {"one": list(one.tokens), "other": list(other.tokens), "number": other.index}
    evidence |= {"extra": show(one.extra), "other_extra": show(other.extra), "before": list(other.before)}
    return evidence | _joined(more_extra.tokens, more_extra.extra)


def _look_alike(one: _Keyed, other: _Keyed) -> str:
    """In what two texts that differ in their last block, or as a whole, are the same."""
    shorter, longer = sorted((one.tokens, other.tokens), key=len)
    same_low_byte = [token % 256 for token in shorter] == [token % 256 for token in longer]
    if one.before == other.before and len(shorter) == len(longer) and shorter[:-1] == longer[:-1]:
        if {shorter[-1], longer[-1]} == {0, MERSENNE}:
            return "hash-alone"
        return "cut-to-8-bits" if same_low_byte else "last-token-left-out"
    if longer == shorter + (0,) * (len(longer) - len(shorter)):
        return "padding-is-a-token"
    if "".join(map(str, shorter)) == "".join(map(str, longer)):
        return "joined-as-text"
    if sorted(shorter) == sorted(longer):
        return "order-lost"
    return "cut-to-8-bits" if same_low_byte else "number-given-twice"


def _keys_history(block_size: int, *sequences: Tokens | tuple[Tokens, _Extra]) -> History:
    operations: list[Operation] = []
    for number, sequence in enumerate(sequences):
        tokens, extra = sequence if sequence and isinstance(sequence[0], tuple) else (sequence, ())
        operations.append(("of_tokens", number, tokens, extra))
    return History({"block_size": block_size}, tuple(operations))


OLDEST = "the block whose last use is longest ago goes first"
TAIL = "among equally old blocks the one that covers most tokens goes first"
FIRST_FREED = "among those the one freed first goes first"
A_VICTIM = "evict returns a block that is here"
IS_GONE = "the victim is here no longer, and nobody's yet"
NOT_COMPUTED = "the victim no longer counts as computed"
OTHERS_STAY = "all other blocks stay as they are"
NONE_LEFT = "an empty evictor refuses with ValueError"


@dataclass(slots=True, eq=False)
class _Content:
    """One block's content in the account."""

    key: int | None  # None for an anonymous one
    hashed: int
    number: int = -1
    stamp: int = -1
    computed: bool = False
    owners: int = 0
    turn: int = 0  # of being freed

    @property
    def rank(self) -> tuple[int, int, int]:
        """Smallest is given up first."""
        return self.stamp, -self.hashed, self.turn

    @property
    def said(self) -> str:
        """The content in words."""
        return "no key" if self.key is None else f"key {self.key}"


class _EvictorWorld(World):
    """An evictor beside a list of who waits in it and since when."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.log, self.names, self.turn = log, Names(), 0
        self.blocks: dict[str, PhysicalTokenBlock] = {}
        self.waiting: dict[str, _Content] = {}
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
        verb, *arguments = operation
        if verb == "add":
            self._add(*arguments)
        elif verb == "remove":
            self._remove(self.names[arguments[0]])
        elif self.waiting:
            self._evict()
        else:
            thoughts = {"returned": "empty-answers", "other_error": "empty-other-error"}
            self.log.refuse(NONE_LEFT, "evictor.evict()", self.evictor.evict, **thoughts)
        self._check_others()

    def _add(self, key: Hashable, stamp: int, hashed: int) -> None:
        name = self.names[key] if key in self.names else self.names.add(key)
        block = self.blocks.setdefault(name, PhysicalTokenBlock(Device.GPU, len(self.blocks), 4))
        block.block_hash, block.computed = _key_of(name), True
        block.last_accessed, block.num_hashed_tokens = stamp, hashed
        self.turn += 1
        self.waiting[name] = _Content(None, hashed, stamp=stamp, turn=self.turn)
        line = f"evictor.add({name})    # last_accessed {stamp}, num_hashed_tokens {hashed}"
        self.log.call(line, self.evictor.add, block)

    def _remove(self, name: str) -> None:
        del self.waiting[name]
        got = self.log.call(f"evictor.remove({name}.block_hash)", self.evictor.remove, _key_of(name))
        self.log.hold(OTHERS_STAY, got is self.blocks[name], f"it should return `{name}`", f"it returned {show(got)}")

    def _evict(self) -> None:
        expected = min(self.waiting, key=lambda name: self.waiting[name].rank)
        refusal = (ValueError, "refuses-too-early")
        here = _count(len(self.waiting), "block")
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
        for name, holds, thought in (
            (OLDEST, b.stamp == a.stamp, self._age_fault(victim)),
            (TAIL, b.hashed == a.hashed, self._tail_fault(victim, a.stamp)),
            (FIRST_FREED, b is a, "equals-in-the-wrong-order"),
        ):
            self.log.hold(name, holds, f"it should be `{expected}`", f"it is `{victim}`", thought, **evidence)

    def _is_here(self, name: str) -> bool:
        return self.log.ask(f"{name}.block_hash in evictor", lambda: _key_of(name) in self.evictor) is True

    def _age_fault(self, victim: str) -> str | None:
        """Why a block went that is younger than another; None where several thoughts lead to it."""
        of = self.waiting
        by_thought = {
            "first-freed-goes-first": min(of, key=lambda name: of[name].turn),
            "last-freed-goes-first": max(of, key=lambda name: of[name].turn),
            "newest-goes-first": max(of, key=lambda name: (of[name].stamp, name == victim)),
            "tail-before-age": max(of, key=lambda name: (of[name].hashed, -of[name].stamp)),
        }
        thoughts = [thought for thought, name in by_thought.items() if name == victim]
        return thoughts[0] if len(thoughts) == 1 else None

    def _tail_fault(self, victim: str, stamp: int) -> str | None:
        """Why a shorter prefix went among equally old blocks."""
        of = {name: waiting for name, waiting in self.waiting.items() if waiting.stamp == stamp}
        if victim not in of:
            return None
        by_freeing = {choose(of, key=lambda name: of[name].turn) for choose in (min, max)}
        is_shortest = of[victim].hashed == min(waiting.hashed for waiting in of.values())
        if is_shortest != (victim in by_freeing):
            return "prefix-goes-first" if is_shortest else "tie-goes-by-freeing"
        return None

    def _check_others(self) -> None:
        number = self.log.ask("evictor.num_blocks", lambda: self.evictor.num_blocks)
        self.log.expect(OTHERS_STAY, "the number of blocks in it", number, len(self.waiting))
        for name, waiting in self.waiting.items():
            block = self.blocks[name]
            self.log.hold(OTHERS_STAY, self._is_here(name), f"`{name}` should still be in the evictor", "it is not")
            now = (block.last_accessed, block.num_hashed_tokens, block.computed)
            what = f"what `{name}` says of itself (last_accessed, num_hashed_tokens, computed)"
            self.log.expect(OTHERS_STAY, what, now, (waiting.stamp, waiting.hashed, True))


def _key_of(name: str) -> str:
    return f"key of {name}"


A_BLOCK = "returns a block of this pool"
HIT_LIVE = "a hit on a live block adds an owner"
HIT_FREED = "a hit on a freed block takes it back as it was"
NEW_FIRST = "blocks that do not exist yet go out before any content is given up"
LRU_GOES = "then the least recently used content is given up"
LABELLED = "what goes out on a miss carries its new key and nothing of the old"
NEVER_SHARED = "different content never shares a block"
FOUND = "a key is found exactly while its content is there"
FREE_COUNT = "the free count follows"
EMPTY_REFUSES = "a pool without a free block refuses with ValueError"
REFUSAL_KEEPS = "a refused call changes nothing"
OWNERS = "free takes one owner away"
STAYS = "a freed block is free and stays addressable"
AS_IT_WAS = "a freed block keeps its key, its stamp and whether it is computed"
SECOND_LIFE = "what was freed can be had again, or is given up in its turn"
DOUBLE_FREE = "a block without an owner is refused with ValueError"
STILL_ALLOCATES = "allocate goes on as 04-allocate asked"

ALLOCATES = A_BLOCK, HIT_LIVE, HIT_FREED, NEW_FIRST, LRU_GOES, LABELLED, NEVER_SHARED, FOUND, FREE_COUNT, EMPTY_REFUSES


class _CacheWorld(World):
    """An allocator beside an account of contents. What `allocate` returned is called a, b, c … in that order."""

    keys: tuple[int, ...] = (1, 2, 3, 4, 0)

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.log, self.total, self.block_size = log, setup["num_blocks"], setup["block_size"]
        self.device = Device(setup["device"])
        self.held: dict[str, tuple[Any, _Content]] = {}  # name -> the learner's block, while this owner holds it
        self.let_go: dict[str, tuple[Any, _Content]] = {}
        self.live: list[_Content] = []
        self.free: list[_Content] = []
        self.asked_for: list[int] = []  # content keys, each once
        self.names, self.turn = Names(), 0
        line = f"CachedBlockAllocator(Device.{self.device.name}, block_size={self.block_size}, num_blocks={self.total})"
        sizes = self.device, self.block_size, self.total
        self.allocator = log.call(f"allocator = {line}", self._fitted(subject), *sizes)

    def _fitted(self, subject: Any) -> Any:
        return subject

    def _named(self, name: str) -> str:
        """The property of this step under which another step's property is compared."""
        return name

    def _thought(self, misconception: str | None) -> str | None:
        """What is behind the symptom, where another step's answer may be."""
        return misconception

    def _hold(self, prop: str, holds: bool, should: str, but: str, thought: str | None, /, **evidence: Any) -> None:
        evidence |= {"blocks": _count(self.total, "block")}
        self.log.hold(self._named(prop), holds, should, but, thought, **evidence)

    def _expect(self, prop: str, what: str, got: Any, should: Any, thought: str | None = None, /, **more: Any) -> None:
        evidence = {"got": show(got), "expected": show(should), "changed": what, **more}
        self.log.expect(self._named(prop), what, got, should, self._thought(thought), **evidence)

    def _field(self, prop: str, name: str, what: str, should: Any, thought: str | None = None, /, **more: Any) -> None:
        """Property `prop`: what the block called `name` says of itself."""
        block, content = (self.held | self.let_go)[name]
        more |= {"name": name, "what": what, "key": content.said, "changed": f"`{name}.{what}`"}
        self._expect(prop, f"{name}.{what}", getattr(block, what), should, thought, **more)

    @property
    def num_free(self) -> int:
        """Free blocks by the account: all that nobody holds."""
        return self.total - len(self.live)

    def choices(self) -> Iterable[Operation]:
        new = self.names.new_key()
        yield from (("allocate", new, content) for content in (*self.keys, None))
        for key, name in self.names.items():
            if name in self.held:
                yield from [("free", key)] * 2
                yield from (("use", key, now) for now in (5, 8))
                if not self.held[name][1].computed:
                    yield "compute", key

    def possible(self, operation: Operation) -> bool:
        verb, key, *_ = operation
        if verb == "allocate":
            return key not in self.names
        return key in self.names and self.names[key] in self.held

    def perform(self, operation: Operation) -> None:
        verb, key, *arguments = operation
        if verb == "allocate":
            self._allocate(key, *arguments)
        elif verb == "free":
            self._free(self.names[key])
        else:
            self._note(verb, self.names[key], *arguments)

    def _note(self, verb: str, name: str, now: int = 0) -> None:
        block, content = self.held[name]
        if verb == "use":
            block.last_accessed = content.stamp = now
            self.log.note(f"{name}.last_accessed = {now}")
        else:
            block.computed = content.computed = True
            self.log.note(f"{name}.computed = True")

    def _allocate(self, key: Hashable, content_key: int | None = None) -> None:
        wanted = _Content(content_key, 0 if content_key is None else self.block_size * (1 + content_key % 3))
        arguments = () if content_key is None else (content_key, wanted.hashed)
        call = f"allocator.allocate({', '.join(map(str, arguments))})"
        if content_key is not None and content_key not in self.asked_for:
            self.asked_for.append(content_key)
        live, freed = self._of_key(self.live, content_key), self._of_key(self.free, content_key)
        blocks, exist = _count(self.total, "block"), len(self.live) + len(self.free)
        if live is None and freed is None and not self.num_free:
            thoughts = {"returned": "empty-pool-answers", "other_error": "empty-pool-other-error"}
            refused = self._named(EMPTY_REFUSES)
            self.log.refuse(refused, call, self.allocator.allocate, *arguments, **thoughts, blocks=blocks)
            self._check_unchanged()
            return
        name = self.names.add(key)
        refusal = "full-pool-refuses-a-hit" if live else "refuses-too-early" if exist < self.total else "never-evicts"
        raises = None if freed else (ValueError, refusal)
        evidence = {"key": content_key, "blocks": blocks, "free": self.num_free}
        line = f"{name} = {call}"
        block = self.log.call(line, self.allocator.allocate, *arguments, raises=raises, **evidence)
        self._check_block(block)
        if live is not None:
            self._hit_live(name, block, live)
        elif freed is not None:
            self._hit_freed(name, block, freed)
        else:
            self._miss(name, block, wanted, exist)
        self._check_everything(name)

    def _of_key(self, contents: list[_Content], key: int | None) -> _Content | None:
        return next((content for content in contents if key is not None and content.key == key), None)

    def _check_block(self, block: Any) -> None:
        fields = ("device", "block_number", "block_size", "ref_count", "computed", "last_accessed")
        fits = all(hasattr(block, name) for name in (*fields, "block_hash", "num_hashed_tokens"))
        thought = "block-not-returned" if block is None else None
        self._hold(A_BLOCK, fits, "it should return a PhysicalTokenBlock", f"it returned {show(block)}", thought)
        in_pool = isinstance(block.block_number, Integral) and 0 <= int(block.block_number) < self.total
        should = f"its block_number should be 0 or more and below {self.total}"
        number = show(block.block_number)
        self._hold(A_BLOCK, in_pool, should, f"it is {number}", "made-up-block", number=number)
        self._expect(A_BLOCK, "its device", block.device, self.device)
        self._expect(A_BLOCK, "its block_size", block.block_size, self.block_size)

    def _holder(self, content: _Content | None) -> str | None:
        """One of those who hold this content."""
        return next((name for name, (_, held) in self.held.items() if held is content), None)

    def _hit_live(self, name: str, block: Any, content: _Content) -> None:
        holder = self._holder(content)
        thought = "zero-is-no-key" if content.key == 0 else "live-key-new-block"
        if content.key and not equal(block.block_number, content.number) and not self._contains(content.key):
            thought = "not-filed"
        self._check_hit(HIT_LIVE, block, content, f"`{holder}` is", thought, holder=holder)
        content.owners += 1
        self.held[name] = block, content
        owners, one_less = _count(content.owners, "owner"), equal(block.ref_count, content.owners - 1)
        thoughts = "live-hit-not-counted" if one_less else None
        self._field(HIT_LIVE, name, "ref_count", content.owners, thoughts, owners=owners)

    def _hit_freed(self, name: str, block: Any, content: _Content) -> None:
        thought = "zero-is-no-key" if content.key == 0 else "freed-not-found"
        self._check_hit(HIT_FREED, block, content, "was freed with this key", thought)
        self.free.remove(content)
        self._take(HIT_FREED, name, block, content)
        self._field(HIT_FREED, name, "computed", content.computed, "taken-back-as-new")
        self._field(HIT_FREED, name, "last_accessed", content.stamp, "taken-back-as-new")
        self._check_free_count("hit-stays-in-evictor", name)

    def _check_hit(self, name: str, block: Any, content: _Content, which: str, thought: str, **evidence: Any) -> None:
        number, got = content.number, block.block_number
        evidence |= {"key": content.key, "number": number, "got": got}
        should, but = f"it should be block {number}, which {which}", f"it is block {got}"
        self._hold(name, equal(got, number), should, but, thought, **evidence)

    def _miss(self, name: str, block: Any, content: _Content, exist: int) -> None:
        self._check_not_shared(name, block, content)
        freed = next((c for c in self.free if equal(block.block_number, c.number)), None)
        evidence = {"number": block.block_number, "other": freed.said if freed else ""}
        but = f"it is block {block.block_number}"
        if exist < self.total:
            should = "it should be a block that has never been used"
            but += f", where the content of {evidence['other']} was kept"
            evidence |= {"key": evidence["other"], "unused": _count(self.total - exist, "block")}
            self._hold(NEW_FIRST, freed is None, should, but, "evicts-before-all-exist", **evidence)
        else:
            victim = min(self.free, key=lambda c: c.rank)
            should = f"it should be block {victim.number}, the least recently used"
            thought = "any-free-block-will-do" if freed else None
            evidence |= {"right": victim.number, "key": victim.said}
            self._hold(LRU_GOES, freed is victim, should, but, thought, **evidence)
            self.free.remove(victim)
        content.number = int(block.block_number)
        self._take(LABELLED, name, block, content)
        if content.key is not None:
            thought = "keeps-another-key" if content.key else "zero-is-no-key"
            self._field(LABELLED, name, "block_hash", content.key, thought)
        self._field(LABELLED, name, "num_hashed_tokens", content.hashed, "keeps-another-length")
        self._field(LABELLED, name, "computed", False, "computed-survives")
        self._field(LABELLED, name, "last_accessed", -1, "keeps-an-old-stamp")
        self._check_free_count("creation-not-counted" if exist < self.total else None, name)

    def _check_not_shared(self, name: str, block: Any, content: _Content) -> None:
        twin = next((c for c in self.live if equal(block.block_number, c.number)), None)
        thought = "given-out-twice"
        if twin is not None and equal(block.ref_count, twin.owners + 1) and None in (twin.key, content.key):
            thought = "none-is-a-key" if twin.key == content.key else "anonymous-key-collides"
        holder = self._holder(twin)
        but = f"it is block {block.block_number}, which `{holder}` still is"
        evidence = {"name": name, "number": block.block_number, "other": holder, "key": content.said}
        evidence |= {"other_key": twin.said if twin else ""}
        self._hold(NEVER_SHARED, twin is None, "it should be a block that nobody has", but, thought, **evidence)

    def _take(self, name_of_property: str, name: str, block: Any, content: _Content) -> None:
        """The account of a block that has its first owner now."""
        self.live.append(content)
        content.owners = 1
        self.held[name] = block, content
        self._field(name_of_property, name, "ref_count", 1, "owner-not-counted" if equal(block.ref_count, 0) else None)

    def _free(self, name: str) -> None:
        """Without a comparison: 04-allocate is checked before there is a free of the learner's."""
        block, _ = self.held[name]
        self.log.call(f"allocator.free({name})", self.allocator.free, block)
        self._lower(name)

    def _lower(self, name: str) -> None:
        """The account of a free."""
        block, content = self.held.pop(name)
        self.let_go[name] = block, content
        content.owners -= 1
        if not content.owners:
            self.turn += 1
            content.turn = self.turn
            self.live.remove(content)
            self.free.append(content)

    def _contains(self, key: int) -> bool:
        return bool(self.log.ask(f"allocator.contains_block({key})", lambda: self.allocator.contains_block(key)))

    def _num_free(self) -> Any:
        return self.log.ask("allocator.get_num_free_blocks()", self.allocator.get_num_free_blocks)

    def _check_unchanged(self) -> None:
        """After a refusal."""
        thought = "changed-before-refusing"
        for name, (_, content) in self.held.items():
            self._field(REFUSAL_KEEPS, name, "ref_count", content.owners, thought)
        self._expect(REFUSAL_KEEPS, "the number of free blocks", self._num_free(), self.num_free, thought)
        for key in self.asked_for:
            self._check_found(key, REFUSAL_KEEPS, thought)

    def _check_free_count(self, one_too_many: str | None, name: str) -> None:
        free = self._num_free()
        thought = one_too_many if equal(free, self.num_free + 1) else None
        self._expect(FREE_COUNT, "the number of free blocks", free, self.num_free, thought, name=name)

    def _check_everything(self, newest: str = "") -> None:
        self._check_free_count(None, newest)
        total = self.log.ask("allocator.get_num_total_blocks()", self.allocator.get_num_total_blocks)
        self._expect(FREE_COUNT, "the number of blocks in all", total, self.total)
        for name, (_, content) in self.held.items():
            self._field(FREE_COUNT, name, "ref_count", content.owners)
        newest_key = self.held[newest][1].key if newest in self.held else None
        for key in self.asked_for:
            is_known = self._of_key([*self.live, *self.free], key)
            thought = "not-filed" if key == newest_key else None
            self._check_found(key, FOUND, thought if is_known else "old-key-still-answers")

    def _check_found(self, key: int, name_of_property: str, thought: str | None, **evidence: Any) -> None:
        expected = self._of_key([*self.live, *self.free], key) is not None
        what = f"contains_block({key})"
        evidence |= {"key": key, "changed": f"what is known of key {key}"}
        self._expect(name_of_property, what, self._contains(key), expected, thought, **evidence)


class _AllocateWorld(_CacheWorld):
    """A class that inherits from the reference lets go of blocks by the reference's `free`: its own comes later."""

    def _fitted(self, subject: Any) -> Any:
        if issubclass(subject, CachedBlockAllocator):
            return type(subject.__name__, (subject,), {"free": CachedBlockAllocator.free})
        return subject


class _FreeWorld(_CacheWorld):
    """Frees, of blocks without an owner too."""

    keys = (1, 2, 3)

    def _named(self, name: str) -> str:
        if name in (HIT_FREED, LRU_GOES, LABELLED):
            return SECOND_LIFE
        return STILL_ALLOCATES if name in ALLOCATES else name

    def _thought(self, misconception: str | None) -> str | None:
        still_live = misconception in ("hit-stays-in-evictor", "old-key-still-answers")
        return "still-filed-as-live" if still_live else misconception

    def choices(self) -> Iterable[Operation]:
        yield from super().choices()
        yield from (("free", key) for key, name in self.names.items() if self._is_free(name))

    def possible(self, operation: Operation) -> bool:
        verb, key, *_ = operation
        return super().possible(operation) or (verb == "free" and key in self.names and self._is_free(self.names[key]))

    def _is_free(self, name: str) -> bool:
        """Whether nobody holds what this name once held, and it has not been given up yet."""
        return name in self.let_go and self.let_go[name][1] in self.free

    def _free(self, name: str) -> None:
        line, free = f"allocator.free({name})", self.allocator.free
        if name not in self.held:
            thoughts = {"returned": "double-free-accepted", "other_error": "double-free-other-error"}
            self.log.refuse(DOUBLE_FREE, line, free, self.let_go[name][0], **thoughts, block=name)
            self._field(REFUSAL_KEEPS, name, "ref_count", 0, "changed-before-refusing")
            self._check_unchanged()
            return
        block, content = self.held[name]
        owners = _count(content.owners, "owner")
        self.log.call(line, free, block, raises=(ValueError, "owner-refused"), name=name, owners=owners)
        self._lower(name)
        self._check_freed(name, block, content)
        self._check_everything()

    def _check_freed(self, name: str, block: Any, content: _Content) -> None:
        left, free = content.owners, self._num_free()
        owners = _count(left, "owner")
        thought = "all-owners-taken-away" if equal(block.ref_count, 0) else None
        if equal(block.ref_count, left + 1):
            thought = "owner-not-taken-away"
        self._field(OWNERS, name, "ref_count", left, thought, owners=owners)
        thought = "comes-back-while-shared" if equal(free, self.num_free + 1) and left else None
        if equal(free, self.num_free - 1) and not left:
            thought = "never-comes-back"
        evidence = {"name": name, "number": content.number, "owners": owners, "s": "s" if left == 1 else ""}
        self._expect(STAYS, "the number of free blocks", free, self.num_free, thought, **evidence)
        if content.key is not None:
            self._check_found(content.key, STAYS, "forgotten-at-once", name=name)
            self._field(AS_IT_WAS, name, "block_hash", content.key)
        self._field(AS_IT_WAS, name, "computed", content.computed, "forgets-computed")
        self._field(AS_IT_WAS, name, "last_accessed", content.stamp, "stamped-when-freed")
        self._field(AS_IT_WAS, name, "num_hashed_tokens", content.hashed)


def _pool_sizes(rng: random.Random) -> Setup:
    return {
        "num_blocks": rng.choice((1, 2, 2, 3, 3, 4, 6)),
        "block_size": rng.choice((1, 4, 16)),
        "device": rng.randint(1, 2),
    }


def _pool_history(num_blocks: int, *operations: str) -> History:
    """Operations such as "allocate a 1", "allocate b" (anonymous), "free a", "use a 5", "compute a"."""
    return _history({"num_blocks": num_blocks, "block_size": 16, "device": 1}, *operations)


HITS = "a sequence's hits are its leading computed blocks"
LEAVES_ONE = "the last block of a table never counts"
COMMON = "hits are common when they are every sequence's"
NO_TABLE = "a sequence without a block table has no hits"
CACHING_OFF = "without prefix caching nothing counts as computed"
ONLY_READS = "tables and free blocks stay as they are"

# How many blocks of a table each thought about marking takes for computed: of the full blocks, those of the prompt
# alone, and whether the sequence is its group's first. None is all of them; "" is right.
MARKED: dict[str, Callable[[int, int, bool], int | None]] = {
    "": lambda full, of_prompt, first: full,
    "last-full-block-not-marked": lambda full, of_prompt, first: max(full - 1, 0),
    "partial-block-marked": lambda full, of_prompt, first: None,
    "prompt-only-marked": lambda full, of_prompt, first: of_prompt,
    "one-sequence-marked": lambda full, of_prompt, first: full if first else 0,
}


class _ComputedWorld(World):
    """A manager beside an account of which block numbers hold which tokens, and which of those have been computed.

    `computed` holds what each entry of MARKED would have marked: what the learner's answer equals tells which thought
    was at work.
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.log, self.block_size, self.total = log, setup["block_size"], setup["num_gpu_blocks"]
        self.caching = setup["caching"] == 1
        self.names = Names()
        self.asked = False  # before the first question nothing is compared, so that each stub is told as a stub
        self.seqs: dict[str, Sequence] = {}
        self.group_of: dict[str, tuple[str, SequenceGroup]] = {}
        self.tables: dict[str, Numbers] = {}  # name -> block numbers, while it has a table
        self.tokens_in: dict[int, Tokens] = {}  # block number -> the tokens up to its end
        self.computed: dict[str, set[int]] = {thought: set() for thought in MARKED}
        line = f"BlockSpaceManager({self.block_size}, {self.total}, 0, enable_caching={self.caching})"
        sizes = f"{_count(self.total, 'block')} of {_count(self.block_size, 'token')}"
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
        keys = [key for key, _ in self.names.items()]
        together = [*list(combinations(keys, 2))[-4:], *list(combinations(keys, 3))[-2:]]
        yield from (("get_common_computed_block_ids", *some) for some in together)

    def possible(self, operation: Operation) -> bool:
        verb, key, *arguments = operation
        if verb == "allocate":
            fits = len(range(0, len(arguments), self.block_size)) <= self.num_free
            return key not in self.names and fits
        if verb == "fork":
            return key not in self.names and arguments[0] in self.names and self.names[arguments[0]] in self.tables
        if verb == "get_common_computed_block_ids":
            return all(other in self.names for other in (key, *arguments))
        if key not in self.names or (verb == "append_slots" and not self.num_free):
            return False
        if verb == "forget":
            return self._marked(self.names[key])[arguments[0] :][:1] == [True]
        return verb == "mark_blocks_as_computed" or self.names[key] in self.tables

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
            of_prompt, full = seq.get_prompt_len() // self.block_size, seq.get_len() // self.block_size
            for thought, marked in MARKED.items():
                self.computed[thought].update(table[: marked(full, of_prompt, other == family[0])])
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
        if not explains and numbers in self._beyond_a_gap(names):
            return "beyond-a-gap"
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
        return bool(numbers) or self._marks_at_all()

    def _marks_at_all(self) -> bool:
        """Whether a single prompt of two full blocks is marked and found: asked when this history is over."""
        for name in self.tables:
            self.manager.free(self.seqs[name])
        seq = Sequence(len(self.seqs), range(90, 91 + 2 * self.block_size), self.block_size)
        if seq.n_blocks > self.total:
            return False
        group = SequenceGroup("asked afterwards", [seq])
        self.manager.allocate(group)
        seq.status = SequenceStatus.RUNNING
        self.manager.mark_blocks_as_computed(group)
        found = self.manager.get_common_computed_block_ids([seq])
        return isinstance(found, list | tuple) and len(found) > 0

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
    return _history(setup, *operations)


STEPS = (
    Step(
        exercise_id="04-content-key",
        title="name a block by its content",
        points=2,
        subject="PrefixKeys",
        writes=("key", "of_tokens"),
        through=("of_tokens",),
        needs=(),
        reference=(PrefixKeys.key, PrefixKeys.of_tokens),
        properties=(A_KEY_EACH, SAME_KEY, OTHER_KEY, EXTRA_KEYS, TOKENS_KEPT),
        misconceptions={
            "keys-not-returned": "The caller wants a list of keys, one a block: yours returned None.",
            "block-alone": "The keys and values in a block depend on every token before it: {one} and {other} end in "
            "equal blocks behind different ones, and yours gave both the same key.",
            "one-block-back": "One block back is not far enough, since {one} and {other} differ before that: chain the "
            "key of the block before, which stands for everything up to there.",
            "number-of-no-prefix": "The number that says no prefix is taken: yours made it the key of {before}, so the "
            "block behind {before} looks like the first block of a text.",
            "partial-block-left-out": "A partial last block has content too, the tokens that it holds: {tokens} is "
            "{blocks} of {size}, and yours returned {keys}.",
            "padding-is-a-token": "An empty slot is no token, and token 0 is one: {one} and {other} are different "
            "texts, and yours gave both the same key.",
            "cut-to-8-bits": "Vocabularies go far beyond 255: {one} and {other} are the same modulo 256 only, and "
            "yours gave both the same key.",
            "joined-as-text": "Written one after the other, {one} and {other} are the same digits: compare token ids "
            "as numbers, one by one.",
            "order-lost": "The order of tokens is part of a text: yours gave {one} and {other} the same key.",
            "hash-alone": "A hash is no evidence, for {one} and {other} have the same one in Python: look the content "
            "itself up, so that what collides is compared.",
            "last-token-left-out": "A key covers its block to the last token: {one} and {other} differ there, and "
            "yours gave both the same key.",
            "number-given-twice": "A key stands for one content only: yours gave the same one to {one} and to "
            "{other}, and whoever comes second would read the first one's cache.",
            "every-call-anew": "The same tokens get the same key whenever they come, or nothing is ever found again: "
            "yours gave {tokens} another key the second time.",
            "what-follows-counts": "A key looks back and never ahead: {one} and {other} begin with the same {number}, "
            "and yours gave the block that ends there two keys.",
            "extra-keys-forgotten": "What else content depends on is part of its key: yours gave {other} the same key "
            "with extra keys {extra} and with {other_extra}.",
            "extra-keys-in-one-block-only": "Extra keys count in every block and not just in one: yours gave block "
            "{number} of {other} the same key with extra keys {extra} and with {other_extra}.",
            "extra-keys-pass-for-tokens": "Extra keys are no tokens: yours takes {bare} with extra keys {extras} for "
            "the tokens {joined}.",
        },
        world=_KeysWorld,
        examples=(
            _keys_history(4, (1, 2, 3, 4, 9, 9, 9, 9), (5, 6, 7, 8, 9, 9, 9, 9), (1, 2, 3, 4, 9, 9)),
            _keys_history(2, (1, 2, 5, 6, 9, 9), (3, 4, 5, 6, 9, 9)),
            _keys_history(4, (1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6)),
            _keys_history(4, (1, 2, 3), (1, 2, 3, 0)),
            _keys_history(4, (1, 2, 3, 4), (1, 2, 3, 7)),
            _keys_history(4, (65,), (321,)),
            _keys_history(4, (12, 3), (1, 23)),
            _keys_history(4, (1, 2, 3), (3, 2, 1)),
            _keys_history(4, (0,), (MERSENNE,)),
            _keys_history(2, ((1, 2, 3), ()), ((1, 2, 3), ("adapter",)), ((1, 2, 3), ("other adapter",))),
            _keys_history(2, ((5, 6, 7, 8), ()), ((7, 8), (5, 6))),
            _keys_history(2, ((1, 2, 3), (1, 2)), ((1, 2, 3), (2, 1))),
            _keys_history(4, (), (9, 9, 9, 9, 9, 9, 9, 9)),
            _keys_history(2, (1, 2, 3, 4, 1, 2)),  # a number may stand for "no prefix" and for a prefix
            _keys_history(1, (1, 2, 3, 4, 1)),
        ),
        setups=lambda rng: {"block_size": rng.choice((1, 2, 4))},
    ),
    Step(
        exercise_id="04-evictor",
        title="which content is given up",
        points=2,
        subject="LRUEvictor",
        writes=("evict",),
        needs=("add", "remove", "num_blocks"),
        reference=(LRUEvictor.evict, PlainEvictor.evict),
        properties=(A_VICTIM, OLDEST, TAIL, FIRST_FREED, IS_GONE, NOT_COMPUTED, OTHERS_STAY, NONE_LEFT),
        misconceptions={
            "victim-not-returned": "Whoever calls `evict` is about to use the block, so return it: yours returned "
            "None.",
            "key-instead-of-block": "The caller needs the block itself, to write a new key on it: yours returned "
            "{got}.",
            "first-freed-goes-first": "How old a block is, its last use says and not the moment it was freed: "
            "`{right}` was last used at {right_stamp}, `{victim}` at {stamp}.",
            "last-freed-goes-first": "A cache is no stack: `{victim}` was freed last and last used at {stamp}, while "
            "`{right}` has been idle since {right_stamp} and is the one least missed.",
            "newest-goes-first": "The smallest `last_accessed` is the longest ago: you gave up `{victim}`, used at "
            "{stamp}, and kept `{right}`, used at {right_stamp}.",
            "tail-before-age": "Age comes first, and length decides among equals only: `{right}` was last used at "
            "{right_stamp}, before `{victim}` at {stamp}.",
            "prefix-goes-first": "A prefix has to outlive its tail, which nobody finds without it: `{right}` covers "
            "{right_hashed} tokens and goes before `{victim}`, which covers {hashed}.",
            "tie-goes-by-freeing": "Among blocks last used at the same time the one that covers most tokens goes "
            "first, whenever it was freed: `{right}` covers {right_hashed}, `{victim}` {hashed}.",
            "equals-in-the-wrong-order": "Where age and length are equal the block freed first goes first, which is "
            "`{right}` and not `{victim}`.",
            "still-here": "A victim is not addressable any more: `{victim}` went out, and its key is still in the "
            "evictor.",
            "still-computed": "The victim's next content has not been computed by anybody: `{victim}.computed` must "
            "be False, or the next owner skips work that was never done.",
            "refuses-too-early": "An evictor gives up its last block too: there was {here} in it, and yours refused.",
            "empty-answers": "An evictor without a block has to say no: raise ValueError, or the caller goes on with "
            "a block that does not exist.",
            "empty-other-error": "The error for an empty evictor is ValueError, since that is what the allocator waits "
            "for: yours ended in {error}.",
        },
        world=_EvictorWorld,
        examples=(
            _history({}, "add a 3 4", "add b 1 4", "add c 5 4", "add d 2 4", "evict"),
            _history({}, "add a 7 8", "add b 7 12", "add c 7 4", "add d 7 8", "evict"),
            _history({}, "add a 1 4", "add b 2 4096", "add c 2 4", *["evict"] * 3),
            _history({}, "add a 2 8", "add b 2 8", "add c 2 8", *["evict"] * 3),
            _history({}, "add a 5 4", "evict", "evict"),
            _history({}, "add a 3 4", "add b 2 4", "remove a", "add a 1 4", "evict"),
        ),
        setups=lambda rng: {},
    ),
    Step(
        exercise_id="04-allocate",
        title="the block of this content",
        points=2,
        subject="CachedBlockAllocator",
        writes=("allocate", "_new_block"),
        through=("allocate",),
        needs=("free", "contains_block", "get_num_free_blocks", "get_num_total_blocks"),
        reference=(CachedBlockAllocator.allocate, CachedBlockAllocator._new_block),
        properties=(*ALLOCATES, REFUSAL_KEEPS),
        misconceptions={
            "block-not-returned": "Whoever calls `allocate` must learn which block it got: yours returned None.",
            "made-up-block": "This pool has {blocks}, numbered from 0, and no more may be created: yours handed out "
            "block {number}.",
            "given-out-twice": "A block that has an owner is not free: you handed out block {number} for {key} while "
            "`{other}` still is that block.",
            "creation-not-counted": "A block that has been created is one less to create: `{name}` went out, "
            "which leaves {expected} free and not {got}, and its number would go out once more.",
            "live-key-new-block": "Same content, same block: `{holder}` holds key {key} in block {number}, and yours "
            "handed out block {got} for the same key.",
            "live-hit-not-counted": "A hit is one owner more: `{name}` has {owners} now and its count says {got}, so "
            "the block would be freed under somebody's feet.",
            "owner-not-counted": "However a block is found, whoever asked for it owns it from now on: `{name}` has 1 "
            "owner and its count says 0.",
            "not-filed": "What is not filed under its key is never found again: a block went out for key {key}, and "
            "`contains_block({key})` is False.",
            "freed-not-found": "A freed block is still a hit: key {key} was waiting in block {number}, computed "
            "perhaps, and yours handed out block {got}.",
            "hit-stays-in-evictor": "A block that is taken back is free no longer: `{name}` has an owner, and the "
            "free count is {got} where {expected} is right, so it could be given up while in use.",
            "taken-back-as-new": "A hit takes a block back as it was, which is what it is good for: "
            "`{name}.{what}` was {expected} and is {got}.",
            "evicts-before-all-exist": "No content is given up while there are blocks that nobody has used: {unused} "
            "did not exist yet, and yours took block {number} from {key}.",
            "any-free-block-will-do": "Which free block goes is no longer all the same: {key} in block {right} is the "
            "least recently used, and yours gave up {other} in block {number}.",
            "never-evicts": "A free block with old content is a free block: of {blocks} {free} could have been given "
            "up, and yours refused.",
            "refuses-too-early": "A pool may give away its last block: of {blocks} {free} could still be created, and "
            "yours refused.",
            "full-pool-refuses-a-hit": "A hit on a live block takes no free block: all blocks are in use, key {key} is "
            "one of them, and yours refused before it looked.",
            "keeps-another-key": "A block carries the key it goes out for, or `free` will file it under another: "
            "`{name}` went out for {key}, and its `block_hash` is {got}.",
            "keeps-another-length": "The number of tokens belongs to the content and not to the block: `{name}` went "
            "out for {key}, which covers {expected} tokens, and it says {got}.",
            "computed-survives": "Nobody has computed the new content yet: `{name}` went out for {key} on a miss, and "
            "its `computed` is {got}.",
            "keeps-an-old-stamp": "New content has not been used yet: `{name}` went out for {key} on a miss, so its "
            "`last_accessed` is {expected}, and yours says {got}.",
            "old-key-still-answers": "Content that was given up is gone: key {key} has no block any more, and "
            "`contains_block({key})` still says True, so somebody will be served foreign text.",
            "none-is-a-key": "None says that nobody may share: `{name}` and `{other}` were asked for without a key, "
            "and yours handed out the same block for both.",
            "anonymous-key-collides": "A made-up key must never equal a real one: block {number} went to `{other}` "
            "for {other_key}, and yours gave it to `{name}` for {key} as well.",
            "zero-is-no-key": "Key 0 is a key like any other, and None alone stands for no key: yours treats what was "
            "asked for under key 0 as content that nobody may share.",
            "empty-pool-answers": "A pool whose blocks all have owners ({blocks}) must say no to new content: raise "
            "ValueError.",
            "empty-pool-other-error": "The error for a pool without a free block is ValueError, since that is what a "
            "caller waits for: yours ended in {error}.",
            "changed-before-refusing": "A call that is refused leaves everything as it was: yours changed {changed} "
            "before it raised.",
        },
        world=_AllocateWorld,
        examples=(
            _pool_history(2, "allocate a 1", "allocate b 1", "allocate c 2", "allocate d 3"),
            _pool_history(2, "allocate a 1", "compute a", "use a 5", "free a", "allocate b 1"),
            _pool_history(3, "allocate a 1", "allocate b 2", "free a", "allocate c 3"),
            _pool_history(2, "allocate a 1", "free a", "allocate b 2", "free b", "allocate c 3"),
            _pool_history(1, "allocate a 1", "compute a", "use a 5", "free a", "allocate b 2"),
            _pool_history(3, "allocate a", "allocate b", "allocate c 0", "allocate d 0"),
            _pool_history(3, "allocate a 0", "allocate b", "allocate c 0"),
            _pool_history(1, "allocate a 1", "allocate b 1", "allocate c"),
            _pool_history(2, "allocate a 3", "allocate b 3", "free a", "free b", "allocate c 1", "allocate d 2"),
            _pool_history(2, "allocate a 1", "use a 8", "allocate b 2", "use b 5", "free a", "free b", "allocate c 3"),
        ),
        setups=_pool_sizes,
    ),
    Step(
        exercise_id="04-free",
        title="free, and still addressable",
        points=1,
        subject="CachedBlockAllocator",
        writes=("free",),
        needs=("allocate", "contains_block", "get_num_free_blocks", "get_num_total_blocks"),
        after=("04-allocate",),
        reference=(CachedBlockAllocator.free,),
        properties=(OWNERS, STAYS, AS_IT_WAS, SECOND_LIFE, DOUBLE_FREE, REFUSAL_KEEPS, STILL_ALLOCATES),
        misconceptions={
            "comes-back-while-shared": "A block is free when its last owner lets go, and not before: block {number} "
            "went to the free ones while {owners} still hold{s} it.",
            "never-comes-back": "A block whose last owner has let go is free: nobody holds `{name}` any more, and it "
            "is not among the free blocks.",
            "forgotten-at-once": "Free does not mean forgotten: `{name}` was freed and its content is still in memory, "
            "yet `contains_block({key})` is False.",
            "still-filed-as-live": "A freed block is in one place only, the evictor: yours is still found among the "
            "live ones, where its key would go on answering after the content is gone.",
            "forgets-computed": "Freeing a block changes nothing in memory: `{name}.computed` was {expected} and is "
            "{got}, so the next hit would compute it all again.",
            "stamped-when-freed": "To free a block is not to use it: `{name}.last_accessed` was {expected} and yours "
            "made it {got}.",
            "owner-not-taken-away": "`free` is one owner letting go, so the count falls by one: `{name}.ref_count` "
            "must be {expected} now, and yours is still {got}.",
            "all-owners-taken-away": "`free` speaks for one owner and not for all of them: `{name}` still has "
            "{owners}, and its count says 0.",
            "owner-refused": "Every owner may let go: `{name}` had {owners}, and your `free` raised ValueError.",
            "double-free-accepted": "To free a block that nobody holds is a mistake of the caller's, and silence would "
            "hide it: `{block}` had 0 owners, so raise ValueError.",
            "double-free-other-error": "The error for a block without an owner is ValueError, since that is what a "
            "caller waits for: yours raised {error}.",
            "changed-before-refusing": "A call that is refused leaves everything as it was: look at the count before "
            "you change it, yours changed {changed} before it raised.",
        },
        world=_FreeWorld,
        examples=(
            _pool_history(3, "allocate a 1", "allocate b 1", "free a", "free b", "free b", "allocate c 1"),
            _pool_history(1, "allocate a 1", "free a", "allocate b 2", "free b", "allocate c 2"),
            _pool_history(2, "allocate a 1", "use a 5", "compute a", "free a", "allocate b 1"),
            _pool_history(2, "allocate a 1", "free a", "free a"),
            _pool_history(2, "allocate a 1", "use a 8", "allocate b 2", "use b 5", "free a", "free b", "allocate c 3"),
        ),
        setups=_pool_sizes,
    ),
    Step(
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
            "one-sequence-marked": "Every sequence of the group has computed its blocks, not the first alone: "
            "{names} should find {expected}, and finds {got}.",
            "beyond-a-gap": "Hits end at the first block that is not computed, since attention needs every key and "
            "value before a token: {names} should find {expected}, and finds {got}.",
            "table-taken-for-granted": "A sequence may have no block table, when it has finished or has not started: "
            "`{name}` has none, so it has no blocks, and that is no error.",
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
            _manager_history(2, "allocate a 1 2 3 4 5", "allocate b 1 2 7", "mark a", "mark b", "hits a b"),
            _manager_history(2, "allocate a 1 2 3 4 5", "allocate b 7 8 9", "mark a", "mark b", "hits a b"),
            _manager_history(2, "allocate a 1 2 3 4 5", "allocate b 7 8 9", "mark a", "hits b a"),
            _manager_history(1, "allocate a 1 2", "allocate b 1 2", "allocate c 7 8", "mark a", "hits a b c"),
            _manager_history(1, "allocate a 1 2 3", "mark a", "forget a 0", "hits a"),
            _manager_history(1, "allocate a 1 2 3", "free a", "allocate b 7 8 9", "mark b", "hits b", num_gpu_blocks=3),
            _manager_history(2, "allocate a 1 2 3 4 5", "mark a", "hits a", caching=False),
            _manager_history(2, "allocate a 1 2 3", "mark a", "free a", "mark a", "hits a"),
        ),
        setups=_manager_sizes,
    ),
)
