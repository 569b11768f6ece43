"""Chapter 04: same content, same block.

Beside the learner's objects stand four accounts: for which tokens a key was given, in which order free blocks must go,
whose content a block holds, and what has been computed. They know tokens, owners and stamps; of a key's value, of the
number of a new block and of what stands in the learner's dictionaries they know nothing.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import combinations
from numbers import Integral
from typing import Any

from refimpl.allocator import CachedBlockAllocator
from refimpl.block import Device, PhysicalTokenBlock
from refimpl.block_manager import BlockSpaceManager
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, equal, show
from refimpl.evictor import LRUEvictor, PlainEvictor
from refimpl.prefix_hash import PrefixKeys
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

Tokens = tuple[int, ...]

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
    extra: tuple[Hashable, ...]
    index: int
    call: Tokens  # all tokens of the call
    size: int  # of a block

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
        self.seen: list[tuple[Tokens, tuple[Hashable, ...]]] = []
        self.key_of: dict[tuple[Tokens, tuple[Hashable, ...]], tuple[Any, _Keyed]] = {}
        self.given_for: dict[Any, _Keyed] = {}  # the learner's key -> the block that has it
        self.keys = log.call("keys = PrefixKeys()", subject)

    def choices(self) -> Iterable[Operation]:
        new = self.names.new_key()
        starts = {(), *(tokens for tokens, _ in self.seen[-4:])}
        longer = {start + piece for start in starts for piece in PIECES if len(start + piece) <= MOST_TOKENS}
        shorter = {tokens[:-1] for tokens, _ in self.seen[-4:]}
        for tokens in sorted(longer | shorter):
            yield "of_tokens", new, tokens, ()
        for tokens, _ in self.seen[-3:]:
            yield from (("of_tokens", new, tokens, extra) for extra in ((), ("adapter",), (1,), (1, 2)))

    def possible(self, operation: Operation) -> bool:
        return operation[1] not in self.names

    def perform(self, operation: Operation) -> None:
        _, key, tokens, extra = operation
        name = self.names.add(key)
        passed = list(tokens)
        extra_text = f", extra_keys={extra}" if extra else ""
        line = f"{name} = keys.of_tokens({passed}, block_size={self.block_size}{extra_text})"
        got = self.log.call(line, self.keys.of_tokens, passed, self.block_size, *([extra] if extra else []))
        self.log.expect(TOKENS_KEPT, "the list of tokens", passed, list(tokens))
        for index, block_key in enumerate(self._check_count(got, tokens, extra)):
            end = min((index + 1) * self.block_size, len(tokens))
            self._check_key(block_key, _Keyed(tokens[:end], extra, index, tokens, self.block_size))
        self.seen.append((tokens, extra))

    def _check_count(self, got: Any, tokens: Tokens, extra: tuple[Hashable, ...]) -> list[Any]:
        """The keys as a list, one a block."""
        starts = range(0, len(tokens), self.block_size)
        should = f"it should return a list of {_count(len(starts), 'key')}"
        listed = hasattr(got, "__iter__") and not isinstance(got, str | bytes)
        misconception = "keys-not-returned" if got is None else None
        self.log.hold(A_KEY_EACH, listed, should, f"it returned {show(got)}", misconception)
        keys = list(got)
        misconception = "partial-block-left-out" if len(keys) == len(tokens) // self.block_size else None
        if extra and len(keys) == len(range(0, len(tokens) + len(extra), self.block_size)):
            misconception = "extra-keys-pass-for-tokens"
        self.log.hold(
            A_KEY_EACH,
            len(keys) == len(starts),
            should,
            f"it returned {len(keys)}",
            misconception,
            tokens=list(tokens),
            bare=list(tokens),
            extras=extra,
            joined=[*extra, *tokens],
            size=self.block_size,
            blocks=_count(len(starts), "block"),
            keys=_count(len(keys), "key"),
        )
        return keys

    def _check_key(self, key: Any, block: _Keyed) -> None:
        try:
            hash(key)
        except TypeError:
            self.log.hold(A_KEY_EACH, False, "a key should be hashable", f"it is {show(key)}")
        content = block.tokens, block.extra
        if content in self.key_of:
            known_key, known = self.key_of[content]
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
            return
        clash = self.given_for.get(key)
        property_of_it = OTHER_KEY if clash is None or clash.extra == block.extra else EXTRA_KEYS
        self.log.hold(
            property_of_it,
            clash is None,
            f"block {block.index} should have a new key",
            f"it has that of {list(clash.tokens) if clash else None}",
            _clash(clash, block, self._first_differs(clash, block)) if clash else None,
            one=list(clash.tokens if clash else ()),
            other=list(block.tokens),
            extra=show(clash.extra if clash else ()),
            other_extra=show(block.extra),
            number=block.index,
            **_joined(clash or block, block),
        )
        if any(other.extra != block.extra for _, other in self.key_of.values()):
            self.log.hold(EXTRA_KEYS, True, "", "")
        self.key_of[content] = key, block
        self.given_for[key] = block

    def _same_again(self, known: _Keyed, known_key: Any) -> bool:
        """Whether the very same call gives the block its key once more."""
        extra = [known.extra] if known.extra else []
        again = self.log.ask("keys.of_tokens(…)", lambda: list(self.keys.of_tokens(known.call, known.size, *extra)))
        return equal(again[known.index] if known.index < len(again) else None, known_key)

    def _first_differs(self, clash: _Keyed | None, block: _Keyed) -> bool:
        """Whether the first blocks of two sequences with equal later keys have keys of their own."""
        if clash is None:
            return False
        firsts = [(other.tokens[: self.block_size], other.extra) for other in (clash, block)]
        keys = [self.key_of[first][0] for first in firsts if first in self.key_of]
        return len(keys) == 2 and not equal(*keys)


def _clash(one: _Keyed, other: _Keyed, first_differs: bool) -> str | None:
    """The misconception behind one key for two contents."""
    if one.extra != other.extra:
        if one.tokens == other.tokens:
            return "extra-keys-in-one-block-only" if first_differs and one.index else "extra-keys-forgotten"
        return "extra-keys-pass-for-tokens" if (*one.extra, *one.tokens) == (*other.extra, *other.tokens) else None
    if one.own == other.own and one.before != other.before:
        size = other.size
        one_back = other.index == one.index > 1 and one.before[-size:] == other.before[-size:]
        return "one-block-back" if one_back else "block-alone"
    if len(one.own) == len(other.own) and one.own[:-1] == other.own[:-1] and one.before == other.before:
        pair = {one.own[-1], other.own[-1]}
        if pair == {0, MERSENNE}:
            return "hash-alone"
        return "cut-to-8-bits" if len({token % 256 for token in pair}) == 1 else "last-token-left-out"
    return _look_alike(one.tokens, other.tokens)


def _joined(one: _Keyed, other: _Keyed) -> dict[str, Any]:
    """Of two blocks the one with more extra keys, and what it looks like when those pass for tokens."""
    block = max(one, other, key=lambda block: len(block.extra))
    return {"bare": list(block.tokens), "extras": block.extra, "joined": [*block.extra, *block.tokens]}


def _look_alike(one: Tokens, other: Tokens) -> str:
    """In what two different texts are the same."""
    shorter, longer = sorted((one, other), key=len)
    if longer == shorter + (0,) * (len(longer) - len(shorter)):
        return "padding-is-a-token"
    if "".join(map(str, one)) == "".join(map(str, other)):
        return "joined-as-text"
    if sorted(one) == sorted(other):
        return "order-lost"
    if [token % 256 for token in one] == [token % 256 for token in other]:
        return "cut-to-8-bits"
    return "number-given-twice"


def _keys_history(block_size: int, *sequences: Tokens | tuple[Tokens, tuple[Hashable, ...]]) -> History:
    operations: list[Operation] = []
    for number, sequence in enumerate(sequences):
        tokens, extra = sequence if sequence and isinstance(sequence[0], tuple) else (sequence, ())
        operations.append(("of_tokens", number, tokens, extra))
    return History({"block_size": block_size}, tuple(operations))


OLDEST = "the block whose last use is longest ago goes first"
TAIL = "among equally old blocks the one that covers most tokens goes first"
FIRST_FREED = "among those the one freed first goes first"
A_VICTIM = "evict returns a block that is here"
IS_GONE = "the victim is here no longer"
NOT_COMPUTED = "the victim no longer counts as computed"
OTHERS_STAY = "all other blocks stay as they are"
NONE_LEFT = "an empty evictor refuses with ValueError"


@dataclass(slots=True)
class _Waiting:
    """A free block of the account: what its place in the order depends on."""

    stamp: int
    hashed: int
    turn: int

    @property
    def rank(self) -> tuple[int, int, int]:
        """Smallest goes first."""
        return self.stamp, -self.hashed, self.turn


class _EvictorWorld(World):
    """An evictor beside a list of who waits in it and since when."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.log, self.names, self.turn = log, Names(), 0
        self.blocks: dict[str, PhysicalTokenBlock] = {}
        self.waiting: dict[str, _Waiting] = {}
        self.evictor = log.call("evictor = LRUEvictor()", subject)

    def choices(self) -> Iterable[Operation]:
        new = self.names.new_key()
        yield from (("add", new, stamp, hashed) for stamp in (1, 2, 3) for hashed in (4, 8))
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
            self.log.refuse(
                NONE_LEFT,
                "evictor.evict()",
                self.evictor.evict,
                returned="empty-answers",
                other_error="empty-other-error",
            )
        self._check_others()

    def _add(self, key: Hashable, stamp: int, hashed: int) -> None:
        name = self.names[key] if key in self.names else self.names.add(key)
        if name not in self.blocks:
            number = len(self.blocks)
            self.blocks[name] = PhysicalTokenBlock(Device.GPU, number, 4, block_hash=f"key of {name}")
        block = self.blocks[name]
        block.last_accessed, block.num_hashed_tokens, block.computed = stamp, hashed, True
        self.turn += 1
        self.waiting[name] = _Waiting(stamp, hashed, self.turn)
        line = f"evictor.add({name})    # last_accessed {stamp}, num_hashed_tokens {hashed}"
        self.log.call(line, self.evictor.add, block)

    def _remove(self, name: str) -> None:
        del self.waiting[name]
        got = self.log.call(f"evictor.remove({name}.block_hash)", self.evictor.remove, self.blocks[name].block_hash)
        self.log.hold(OTHERS_STAY, got is self.blocks[name], f"it should return `{name}`", f"it returned {show(got)}")

    def _evict(self) -> None:
        expected = min(self.waiting, key=lambda name: self.waiting[name].rank)
        refusal = (ValueError, "refuses-too-early")
        here = _count(len(self.waiting), "block")
        got = self.log.call("evictor.evict()", self.evictor.evict, raises=refusal, here=here)
        victim = self._named(got)
        a, b = self.waiting[expected], self.waiting[victim]
        named = {"victim": victim, "right": expected, "stamp": b.stamp, "right_stamp": a.stamp}
        named |= {"hashed": b.hashed, "right_hashed": a.hashed}
        should, but = f"it should be `{expected}`", f"it is `{victim}`"
        others = len(self.waiting) > 1
        if others:
            self.log.hold(OLDEST, b.stamp == a.stamp, should, but, self._age_fault(victim), **named)
            self.log.hold(TAIL, b.hashed == a.hashed, should, but, self._tail_fault(victim, a.stamp), **named)
            self.log.hold(FIRST_FREED, victim == expected, should, but, "equals-in-the-wrong-order", **named)
        del self.waiting[victim]
        block = self.blocks[victim]
        is_here = self._is_here(victim)
        should, but = f"`{victim}` should not be in the evictor", "it still is"
        self.log.hold(IS_GONE, not is_here, should, but, "still-here", victim=victim)
        self.log.expect(NOT_COMPUTED, f"{victim}.computed", block.computed, False, "still-computed", victim=victim)

    def _named(self, got: Any) -> str:
        """The name of the block that was returned."""
        name = next((name for name in self.waiting if self.blocks[name] is got), None)
        misconception = "victim-not-returned" if got is None else None
        if any(equal(got, block.block_hash) or equal(got, block.block_number) for block in self.blocks.values()):
            misconception = "key-instead-of-block"
        should, but = "it should return one of the blocks that are here", f"it returned {show(got)}"
        self.log.hold(A_VICTIM, name is not None, should, but, misconception, got=show(got))
        return str(name)

    def _is_here(self, name: str) -> bool:
        key = self.blocks[name].block_hash
        return self.log.ask(f"{name}.block_hash in evictor", lambda: key in self.evictor) is True

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
            is_here = self._is_here(name)
            self.log.hold(OTHERS_STAY, is_here, f"`{name}` should still be in the evictor", "it is not")
            now = (block.last_accessed, block.num_hashed_tokens, block.computed)
            what = f"what `{name}` says of itself (last_accessed, num_hashed_tokens, computed)"
            self.log.expect(OTHERS_STAY, what, now, (waiting.stamp, waiting.hashed, True))


def _evictor_history(*blocks: tuple[int, int], evictions: int = 1) -> History:
    """Blocks of these stamps and lengths are freed in this order, and the first victims asked for."""
    adds: list[Operation] = [("add", number, stamp, hashed) for number, (stamp, hashed) in enumerate(blocks)]
    return History({}, (*adds, *[("evict",)] * evictions))


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


class _CacheWorld(World):
    """An allocator beside an account of contents. What `allocate` returned is called a, b, c … in that order."""

    a_block, hit_live, new_first = A_BLOCK, HIT_LIVE, NEW_FIRST
    hit_freed, lru_goes, labelled = HIT_FREED, LRU_GOES, LABELLED
    never_shared, found, free_count = NEVER_SHARED, FOUND, FREE_COUNT
    empty_refuses = EMPTY_REFUSES
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
        self.allocator = log.call(
            f"allocator = CachedBlockAllocator(Device.{self.device.name}, block_size={self.block_size}, "
            f"num_blocks={self.total})",
            self._fitted(subject),
            self.device,
            self.block_size,
            self.total,
        )

    def _fitted(self, subject: Any) -> Any:
        return subject

    def _thought(self, misconception: str | None) -> str | None:
        """What is behind the symptom, where another step's answer may be."""
        return misconception

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

    def _allocate(self, key: Hashable, content_key: int | None) -> None:
        hashed = 0 if content_key is None else self.block_size * (1 + content_key % 3)
        arguments = () if content_key is None else (content_key, hashed)
        call = f"allocator.allocate({', '.join(map(str, arguments))})"
        if content_key is not None and content_key not in self.asked_for:
            self.asked_for.append(content_key)
        live = next((c for c in self.live if content_key is not None and c.key == content_key), None)
        freed = next((c for c in self.free if content_key is not None and c.key == content_key), None)
        if live is None and freed is None and not self.num_free:
            self._refused(call, arguments)
            return
        name = self.names.add(key)
        exist = len(self.live) + len(self.free)
        refusal = "full-pool-refuses-a-hit" if live else "refuses-too-early" if exist < self.total else "never-evicts"
        block = self.log.call(
            f"{name} = {call}",
            self.allocator.allocate,
            *arguments,
            raises=None if freed else (ValueError, refusal),
            key=content_key,
            blocks=_count(self.total, "block"),
            free=self.num_free,
        )
        self._check_block(block)
        if live is not None:
            self._hit_live(name, block, live)
        elif freed is not None:
            self._hit_freed(name, block, freed)
        else:
            self._miss(name, block, _Content(content_key, hashed), exist)
        self._check_everything(name)

    def _refused(self, call: str, arguments: tuple[int, ...]) -> None:
        self.log.refuse(
            self.empty_refuses,
            call,
            self.allocator.allocate,
            *arguments,
            returned="empty-pool-answers",
            other_error="empty-pool-other-error",
            blocks=_count(self.total, "block"),
        )
        self._check_unchanged()

    def _check_block(self, block: Any) -> None:
        fields = ("device", "block_number", "block_size", "ref_count", "computed", "last_accessed")
        fits = all(hasattr(block, name) for name in (*fields, "block_hash", "num_hashed_tokens"))
        misconception = "block-not-returned" if block is None else None
        should = "it should return a PhysicalTokenBlock"
        self.log.hold(self.a_block, fits, should, f"it returned {show(block)}", misconception)
        in_pool = isinstance(block.block_number, Integral) and 0 <= int(block.block_number) < self.total
        self.log.hold(
            self.a_block,
            in_pool,
            f"its block_number should be 0 or more and below {self.total}",
            f"it is {show(block.block_number)}",
            "made-up-block",
            number=show(block.block_number),
            blocks=_count(self.total, "block"),
        )
        self.log.expect(self.a_block, "its device", block.device, self.device)
        self.log.expect(self.a_block, "its block_size", block.block_size, self.block_size)

    def _hit_live(self, name: str, block: Any, content: _Content) -> None:
        holder = next(other for other, (_, held) in self.held.items() if held is content)
        self.log.hold(
            self.hit_live,
            equal(block.block_number, content.number),
            f"it should be block {content.number}, which `{holder}` is",
            f"it is block {block.block_number}",
            "zero-is-no-key" if content.key == 0 else self._filed(content, "live-key-new-block"),
            key=content.key,
            holder=holder,
            number=content.number,
            got=block.block_number,
        )
        content.owners += 1
        self.held[name] = block, content
        self.log.expect(
            self.hit_live,
            f"{name}.ref_count",
            block.ref_count,
            content.owners,
            "live-hit-not-counted" if equal(block.ref_count, content.owners - 1) else None,
            name=name,
            owners=_count(content.owners, "owner"),
            got=show(block.ref_count),
        )

    def _filed(self, content: _Content, misconception: str) -> str:
        """The misconception, unless the key of this live block was never written down."""
        found = self.log.ask(f"allocator.contains_block({content.key})", lambda: self._contains(content.key))
        return misconception if found else "not-filed"

    def _hit_freed(self, name: str, block: Any, content: _Content) -> None:
        self.log.hold(
            self.hit_freed,
            equal(block.block_number, content.number),
            f"it should be block {content.number}, which was freed with this key",
            f"it is block {block.block_number}",
            "zero-is-no-key" if content.key == 0 else "freed-not-found",
            key=content.key,
            number=content.number,
            got=block.block_number,
        )
        self.free.remove(content)
        self.live.append(content)
        content.owners = 1
        self.held[name] = block, content
        self._check_one_owner(self.hit_freed, name, block)
        for what, kept in (("computed", content.computed), ("last_accessed", content.stamp)):
            self.log.expect(
                self.hit_freed,
                f"{name}.{what}",
                getattr(block, what),
                kept,
                "taken-back-as-new",
                name=name,
                what=what,
                kept=kept,
                got=show(getattr(block, what)),
            )
        self._check_free_count("hit-stays-in-evictor", name)

    def _miss(self, name: str, block: Any, content: _Content, exist: int) -> None:
        self._check_not_shared(name, block, content)
        freed = next((c for c in self.free if equal(block.block_number, c.number)), None)
        if exist < self.total:
            self.log.hold(
                self.new_first,
                freed is None,
                "it should be a block that has never been used",
                f"it is block {block.block_number}, where the content of {freed.said if freed else ''} was kept",
                "evicts-before-all-exist",
                number=block.block_number,
                key=freed.said if freed else "",
                unused=_count(self.total - exist, "block"),
            )
        else:
            victim = min(self.free, key=lambda c: c.rank)
            self.log.hold(
                self.lru_goes,
                freed is victim,
                f"it should be block {victim.number}, the least recently used",
                f"it is block {block.block_number}",
                "any-free-block-will-do" if freed else None,
                number=block.block_number,
                right=victim.number,
                key=victim.said,
                other=freed.said if freed else "",
            )
            self.free.remove(victim)
        content.number, content.owners = int(block.block_number), 1
        self.live.append(content)
        self.held[name] = block, content
        self._check_one_owner(self.labelled, name, block)
        self._check_label(name, block, content)
        self._check_free_count("creation-not-counted" if exist < self.total else None, name)

    def _check_not_shared(self, name: str, block: Any, content: _Content) -> None:
        twin = next((c for c in self.live if equal(block.block_number, c.number)), None)
        misconception = "given-out-twice"
        if twin is not None and equal(block.ref_count, twin.owners + 1):
            both_anonymous = twin.key is None and content.key is None
            misconception = "none-is-a-key" if both_anonymous else "anonymous-key-collides"
        if twin is not None and twin.key is not None and content.key is not None:
            misconception = "given-out-twice"
        holder = next((other for other, (_, held) in self.held.items() if held is twin), None)
        self.log.hold(
            self.never_shared,
            twin is None,
            "it should be a block that nobody has",
            f"it is block {block.block_number}, which `{holder}` still is",
            misconception,
            name=name,
            number=block.block_number,
            other=holder,
            key=content.said,
            other_key=twin.said if twin else "",
        )

    def _check_one_owner(self, name_of_property: str, name: str, block: Any) -> None:
        misconception = "owner-not-counted" if equal(block.ref_count, 0) else None
        self.log.expect(name_of_property, f"{name}.ref_count", block.ref_count, 1, misconception, name=name)

    def _check_label(self, name: str, block: Any, content: _Content) -> None:
        labels = [
            ("num_hashed_tokens", block.num_hashed_tokens, content.hashed, "keeps-another-length"),
            ("computed", block.computed, False, "computed-survives"),
            ("last_accessed", block.last_accessed, -1, "keeps-an-old-stamp"),
        ]
        if content.key is not None:
            thought = "keeps-another-key" if content.key else "zero-is-no-key"
            labels.insert(0, ("block_hash", block.block_hash, content.key, thought))
        for what, got, expected, misconception in labels:
            evidence = {"name": name, "got": show(got), "key": content.said, "expected": show(expected)}
            self.log.expect(self.labelled, f"{name}.{what}", got, expected, misconception, **evidence)

    def _free(self, name: str) -> None:
        """Without a comparison: 04-allocate is checked before there is a free of the learner's."""
        block, _ = self.held[name]
        self.log.call(f"allocator.free({name})", self.allocator.free, block)
        self._lower(name)

    def _lower(self, name: str) -> _Content:
        """The account of a free."""
        block, content = self.held.pop(name)
        self.let_go[name] = block, content
        content.owners -= 1
        if not content.owners:
            self.turn += 1
            content.turn = self.turn
            self.live.remove(content)
            self.free.append(content)
        return content

    def _contains(self, key: int | None) -> bool:
        return bool(self.allocator.contains_block(key))

    def _check_unchanged(self) -> None:
        """After a refusal."""
        for name, (block, content) in self.held.items():
            changed = f"`{name}.ref_count`"
            what = f"{name}.ref_count"
            self.log.expect(
                REFUSAL_KEEPS, what, block.ref_count, content.owners, "changed-before-refusing", changed=changed
            )
        what = "the number of free blocks"
        self.log.expect(REFUSAL_KEEPS, what, self._num_free(), self.num_free, "changed-before-refusing", changed=what)
        for key in self.asked_for:
            self._check_found(key, REFUSAL_KEEPS, "changed-before-refusing", changed=f"what is known of key {key}")

    def _num_free(self) -> Any:
        return self.log.ask("allocator.get_num_free_blocks()", self.allocator.get_num_free_blocks)

    def _check_free_count(self, too_many: str | None, name: str) -> None:
        free = self._num_free()
        misconception = self._thought(too_many) if equal(free, self.num_free + 1) else None
        evidence = {"name": name, "free": show(free), "expected": self.num_free}
        self.log.expect(self.free_count, "the number of free blocks", free, self.num_free, misconception, **evidence)

    def _check_everything(self, newest: str | None = None) -> None:
        self._check_free_count(None, newest or "")
        total = self.log.ask("allocator.get_num_total_blocks()", self.allocator.get_num_total_blocks)
        self.log.expect(self.free_count, "the number of blocks in all", total, self.total)
        for name, (block, content) in self.held.items():
            self.log.expect(self.free_count, f"{name}.ref_count", block.ref_count, content.owners)
        newest_key = self.held[newest][1].key if newest in self.held else None
        for key in self.asked_for:
            is_newest = newest_key is not None and key == newest_key
            gone = not any(c.key == key for c in (*self.live, *self.free))
            self._check_found(key, self.found, "not-filed" if is_newest else "old-key-still-answers" if gone else None)

    def _check_found(self, key: int, name_of_property: str, misconception: str | None, **evidence: Any) -> None:
        found = self.log.ask(f"allocator.contains_block({key})", lambda: self._contains(key))
        expected = any(c.key == key for c in (*self.live, *self.free))
        evidence = {"key": key, **evidence}
        what = f"contains_block({key})"
        self.log.expect(name_of_property, what, found, expected, self._thought(misconception), **evidence)


class _AllocateWorld(_CacheWorld):
    """A class that inherits from the reference lets go of blocks by the reference's `free`: its own comes later."""

    def _fitted(self, subject: Any) -> Any:
        if issubclass(subject, CachedBlockAllocator):
            return type(subject.__name__, (subject,), {"free": CachedBlockAllocator.free})
        return subject


class _FreeWorld(_CacheWorld):
    """Frees, of blocks without an owner too."""

    a_block = hit_live = new_first = never_shared = found = free_count = empty_refuses = STILL_ALLOCATES
    hit_freed = lru_goes = labelled = SECOND_LIFE
    keys = (1, 2, 3)

    def choices(self) -> Iterable[Operation]:
        yield from super().choices()
        yield from (("free", key) for key, name in self.names.items() if self._is_free(name))

    def possible(self, operation: Operation) -> bool:
        verb, key, *_ = operation
        return super().possible(operation) or (verb == "free" and key in self.names and self._is_free(self.names[key]))

    def _thought(self, misconception: str | None) -> str | None:
        still_live = misconception in ("hit-stays-in-evictor", "old-key-still-answers")
        return "still-filed-as-live" if still_live else misconception

    def _is_free(self, name: str) -> bool:
        """Whether nobody holds what this name once held, and it has not been given up yet."""
        return name in self.let_go and self.let_go[name][1] in self.free

    def _free(self, name: str) -> None:
        if name not in self.held:
            self._free_again(name)
            return
        block, content = self.held[name]
        self.log.call(
            f"allocator.free({name})",
            self.allocator.free,
            block,
            raises=(ValueError, "owner-refused"),
            name=name,
            owners=_count(content.owners, "owner"),
        )
        self._lower(name)
        self._check_freed(name, block, content)
        self._check_everything()

    def _check_freed(self, name: str, block: Any, content: _Content) -> None:
        left, free = content.owners, self._num_free()
        owners = _count(left, "owner")
        fault = "all-owners-taken-away" if equal(block.ref_count, 0) else None
        if equal(block.ref_count, left + 1):
            fault = "owner-not-taken-away"
        evidence = {"name": name, "left": left, "owners": owners, "got": show(block.ref_count)}
        self.log.expect(OWNERS, f"{name}.ref_count", block.ref_count, left, fault, **evidence)
        fault = "comes-back-while-shared" if equal(free, self.num_free + 1) and left else None
        if equal(free, self.num_free - 1) and not left:
            fault = "never-comes-back"
        evidence = {"name": name, "number": content.number, "owners": owners, "s": "s" if left == 1 else ""}
        self.log.expect(STAYS, "the number of free blocks", free, self.num_free, fault, **evidence)
        if content.key is not None:
            self._check_found(content.key, STAYS, "forgotten-at-once", name=name)
        kept: list[tuple[str, Any, Any, str | None]] = [
            ("computed", block.computed, content.computed, "forgets-computed")
        ]
        kept += [("last_accessed", block.last_accessed, content.stamp, "stamped-when-freed")]
        kept += [("num_hashed_tokens", block.num_hashed_tokens, content.hashed, None)]
        if content.key is not None:
            kept += [("block_hash", block.block_hash, content.key, None)]
        for what, got, expected, misconception in kept:
            evidence = {"name": name, "got": show(got), "expected": show(expected)}
            self.log.expect(AS_IT_WAS, f"{name}.{what}", got, expected, misconception, **evidence)

    def _free_again(self, name: str) -> None:
        self.log.refuse(
            DOUBLE_FREE,
            f"allocator.free({name})",
            self.allocator.free,
            self.let_go[name][0],
            returned="double-free-accepted",
            other_error="double-free-other-error",
            block=name,
        )
        block = self.let_go[name][0]
        changed = f"`{name}.ref_count`"
        self.log.expect(
            REFUSAL_KEEPS, f"{name}.ref_count", block.ref_count, 0, "changed-before-refusing", changed=changed
        )
        self._check_unchanged()

    def _hit_freed(self, name: str, block: Any, content: _Content) -> None:
        super()._hit_freed(name, block, content)
        self.log.hold(SECOND_LIFE, True, "", "")


def _pool_sizes(rng: random.Random) -> Setup:
    return {
        "num_blocks": rng.choice((1, 2, 2, 3, 3, 4, 6)),
        "block_size": rng.choice((1, 4, 16)),
        "device": rng.randint(1, 2),
    }


def _pool_history(num_blocks: int, *operations: str) -> History:
    """Operations such as "allocate a 1", "allocate b" (anonymous), "free a", "use a 5", "compute a"."""
    setup = {"num_blocks": num_blocks, "block_size": 16, "device": 1}
    return History(setup, tuple(_pool_operation(*operation.split()) for operation in operations))


def _pool_operation(verb: str, key: str, number: str | None = None) -> Operation:
    if verb == "allocate":
        return verb, key, None if number is None else int(number)
    return (verb, key) if number is None else (verb, key, int(number))


HITS = "a sequence's hits are its leading computed blocks"
LEAVES_ONE = "the last block of a table never counts"
COMMON = "hits are common when they are every sequence's"
NO_TABLE = "a sequence without a block table has no hits"
CACHING_OFF = "without prefix caching nothing counts as computed"
ONLY_READS = "tables and free blocks stay as they are"

Numbers = list[int]


class _ComputedWorld(World):
    """A manager beside an account of which block numbers hold which tokens, and which of those have been computed.

    `computed` holds the right account under "", and under the name of each misconception about marking what it would
    have marked: what the learner's answer equals tells which thought was at work.
    """

    marked_by = (
        "",
        "last-full-block-not-marked",
        "partial-block-marked",
        "prompt-only-marked",
        "one-sequence-marked",
    )

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        self.log, self.block_size, self.total = log, setup["block_size"], setup["num_gpu_blocks"]
        self.caching = setup["caching"] == 1
        self.names = Names()
        self.asked = False  # before the first question nothing is compared, so that each stub is told as a stub
        self.seqs: dict[str, Sequence] = {}
        self.group_of: dict[str, tuple[str, SequenceGroup]] = {}
        self.tables: dict[str, Numbers] = {}  # name -> block numbers, while it has a table
        self.tokens_in: dict[int, Tokens] = {}  # block number -> the tokens up to its end
        self.computed: dict[str, set[int]] = {thought: set() for thought in self.marked_by}
        self.manager = log.call(
            f"manager = BlockSpaceManager({self.block_size}, {self.total}, 0, enable_caching={self.caching})"
            f"    # {_count(self.total, 'block')} of {_count(self.block_size, 'token')}",
            subject,
            self.block_size,
            self.total,
            0,
            0.01,  # of so few blocks it reserves none
            self.caching,
        )

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
        yield from (("allocate", new, tokens) for tokens in sorted(starts))
        for key in [key for key, name in self.names.items() if name in self.tables]:
            yield from [("append_slots", key, 3), ("append_slots", key, 4), ("free", key), ("fork", new, key)]
            yield from [("mark_blocks_as_computed", key)] * 3
            yield from [("get_common_computed_block_ids", key)] * 2
        keys = [key for key, _ in self.names.items()]
        yield from (("get_common_computed_block_ids", *pair) for pair in list(combinations(keys, 2))[-4:])

    def possible(self, operation: Operation) -> bool:
        verb, key, *arguments = operation
        if verb == "allocate":
            fits = len(range(0, len(arguments[0]), self.block_size)) <= self.num_free
            return key not in self.names and fits
        if verb == "fork":
            return key not in self.names and arguments[0] in self.names and self.names[arguments[0]] in self.tables
        if verb == "get_common_computed_block_ids":
            return all(other in self.names for other in (key, *arguments))
        if key not in self.names or (verb == "append_slots" and not self.num_free):
            return False
        return verb == "mark_blocks_as_computed" or self.names[key] in self.tables

    def perform(self, operation: Operation) -> None:
        verb, key, *arguments = operation
        if verb == "allocate":
            self._allocate(self.names.add(key), *arguments)
        elif verb == "fork":
            self._fork(self.names[arguments[0]], self.names.add(key))
        elif verb == "append_slots":
            self._append(self.names[key], *arguments)
        elif verb == "free":
            self._free(self.names[key])
        elif verb == "mark_blocks_as_computed":
            self._mark(self.names[key])
        else:
            self._common([self.names[other] for other in (key, *arguments)])

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
                    for computed in self.computed.values():
                        computed.discard(number)

    def _mark(self, name: str) -> None:
        group_name, group = self.group_of[name]
        family = [other for other, (other_group, _) in self.group_of.items() if other_group == group_name]
        without = [other for other in family if other not in self.tables]
        self.log.call(
            f"manager.mark_blocks_as_computed({group_name})",
            self.manager.mark_blocks_as_computed,
            group,
            raises=(KeyError, "table-taken-for-granted") if without else None,
            name=without[0] if without else "",
        )
        for other in family:
            table, seq = self.tables.get(other, []), self.seqs[other]
            full = seq.get_len() // self.block_size
            for thought, numbers in (
                ("", table[:full]),
                ("last-full-block-not-marked", table[: max(full - 1, 0)]),
                ("partial-block-marked", table),
                ("prompt-only-marked", table[: seq.get_prompt_len() // self.block_size]),
                ("one-sequence-marked", table[:full] if other == family[0] else []),
            ):
                self.computed[thought].update(numbers)
        if self.asked:
            self._check_only_reads()

    def _common(self, names: list[str]) -> None:
        without = [name for name in names if name not in self.tables]
        got = self.log.call(
            f"manager.get_common_computed_block_ids([{', '.join(names)}])",
            self.manager.get_common_computed_block_ids,
            [self.seqs[name] for name in names],
            raises=(KeyError, "table-taken-for-granted") if without else None,
            name=without[0] if without else "",
        )
        self.asked = True
        hits = [self._hits(name) for name in names]
        expected = _common_prefix(hits) if self.caching else []
        numbers = list(got) if isinstance(got, list | tuple) else None
        self.log.hold(
            self._property(names, without, expected),
            numbers is not None and len(numbers) == len(expected) and all(map(equal, numbers, expected)),
            f"it should return {expected}",
            f"it returned {self._seen(got)}",
            self._fault(got, numbers, names, hits, expected),
            names=" and ".join(names),
            first=names[0],
            expected=expected,
            got=self._seen(got),
            tokens=[self.seqs[name].get_token_ids() for name in names][0],
            block=next((number for number in numbers or [] if number not in expected), ""),
        )
        self._check_only_reads()

    def _property(self, names: list[str], without: list[str], expected: Numbers) -> str:
        if not self.caching:
            return CACHING_OFF
        if without:
            return NO_TABLE
        if len(names) > 1:
            return COMMON
        return LEAVES_ONE if expected != self._hits(names[0], last_too=True) else HITS

    def _hits(self, name: str, thought: str = "", last_too: bool = False) -> Numbers:
        """The leading computed blocks of a table by one of the accounts."""
        table = self.tables.get(name, [])
        found: Numbers = []
        for number in table if last_too else table[:-1]:
            if number not in self.computed[thought]:
                break
            found.append(number)
        return found

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
        predicted = {
            thought: _common_prefix([self._hits(name, thought) for name in names])
            for thought in self.marked_by
            if thought
        }
        predicted |= {
            "last-block-counts": _common_prefix([self._hits(name, last_too=True) for name in names]),
            "one-sequence-speaks-for-all": hits[0],
            "no-hits-ignored": _common_prefix([hit for hit in hits if hit]),
            "shortest-is-not-common": min(hits, key=len),
            "order-lost": sorted(expected),
        }
        explains = [thought for thought, answer in predicted.items() if answer != expected and answer == numbers]
        if len(explains) != 1 or (explains[0] in self.marked_by and not numbers and not self._marks_at_all()):
            return None
        return explains[0]

    def _marks_at_all(self) -> bool:
        """Whether a single prompt of two full blocks is marked and found: asked when this history is over."""
        for name in self.tables:
            self.manager.free(self.seqs[name])
        seq = Sequence(len(self.seqs), range(90, 91 + 2 * self.block_size), self.block_size)
        if seq.n_blocks > self.total:
            return False
        group = SequenceGroup("asked afterwards", [seq])
        self.manager.allocate(group)
        self.manager.mark_blocks_as_computed(group)
        found = self.manager.get_common_computed_block_ids([seq])
        return isinstance(found, list | tuple) and len(found) > 0

    def _seen(self, got: Any) -> str:
        return show([getattr(item, "block_number", item) for item in got] if isinstance(got, list) else got)

    def _check_only_reads(self) -> None:
        for name, table in self.tables.items():
            now = self.manager.get_block_table(self.seqs[name])
            self.log.expect(ONLY_READS, f"the block table of {name}", now, table)
        free = self.log.ask("manager.get_num_free_gpu_blocks()", self.manager.get_num_free_gpu_blocks)
        self.log.expect(ONLY_READS, "the number of free blocks", free, self.num_free)


def _common_prefix(lists: list[Numbers]) -> Numbers:
    """What all lists begin with."""
    found: Numbers = []
    for index, number in enumerate(lists[0] if lists else []):
        if any(len(other) <= index or other[index] != number for other in lists):
            break
        found.append(number)
    return found


def _manager_sizes(rng: random.Random) -> Setup:
    return {
        "block_size": rng.choice((1, 2, 2, 4)),
        "num_gpu_blocks": rng.choice((4, 6, 8, 12)),
        "caching": rng.choice((1, 1, 1, 1, 1, 2)),
    }


def _manager_history(block_size: int, *operations: Operation, caching: bool = True, num_gpu_blocks: int = 8) -> History:
    setup = {"block_size": block_size, "num_gpu_blocks": num_gpu_blocks, "caching": 1 if caching else 2}
    return History(setup, operations)


def _mark(key: Hashable) -> Operation:
    return "mark_blocks_as_computed", key


def _hits_of(*keys: Hashable) -> Operation:
    return ("get_common_computed_block_ids", *keys)


def _count(number: int, thing: str) -> str:
    return f"1 {thing}" if number == 1 else f"{number} {thing}s"


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
            _keys_history(4, (65,), (321,)),
            _keys_history(4, (12, 3), (1, 23)),
            _keys_history(4, (1, 2, 3), (3, 2, 1)),
            _keys_history(4, (0,), (MERSENNE,)),
            _keys_history(4, (1, 2, 3, 4), (1, 2, 3, 7)),
            _keys_history(2, ((1, 2, 3), ()), ((1, 2, 3), ("adapter",)), ((1, 2, 3), ("other adapter",))),
            _keys_history(2, ((5, 6, 7, 8), ()), ((7, 8), (5, 6))),
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
            _evictor_history((3, 4), (1, 4), (5, 4), (2, 4)),
            _evictor_history((7, 8), (7, 12), (7, 4), (7, 8)),
            _evictor_history((1, 4), (2, 8), (2, 4), evictions=3),
            _evictor_history((2, 8), (2, 8), (2, 8), evictions=3),
            _evictor_history((5, 4), evictions=2),
            History({}, (("add", 0, 3, 4), ("add", 1, 2, 4), ("remove", 0), ("add", 0, 1, 4), ("evict",))),
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
        properties=(
            A_BLOCK,
            HIT_LIVE,
            HIT_FREED,
            NEW_FIRST,
            LRU_GOES,
            LABELLED,
            NEVER_SHARED,
            FOUND,
            FREE_COUNT,
            EMPTY_REFUSES,
            REFUSAL_KEEPS,
        ),
        misconceptions={
            "block-not-returned": "Whoever calls `allocate` must learn which block it got: yours returned None.",
            "made-up-block": "This pool has {blocks}, numbered from 0, and no more may be created: yours handed out "
            "block {number}.",
            "given-out-twice": "A block that has an owner is not free: you handed out block {number} for {key} while "
            "`{other}` still is that block.",
            "creation-not-counted": "A block that has been created is one less to create: `{name}` went out, "
            "which leaves {expected} free and not {free}, and its number would go out once more.",
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
            "free count is {free} where {expected} is right, so it could be given up while in use.",
            "taken-back-as-new": "A hit takes a block back as it was, which is what it is good for: "
            "`{name}.{what}` was {kept} and is {got}.",
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
            "must be {left} now, and yours is still {got}.",
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
            "counts-without-caching": "Without prefix caching no block is ever found again, so nothing is saved: "
            "return [] when `enable_caching` is False, and yours returned {got}.",
        },
        world=_ComputedWorld,
        examples=(
            _manager_history(
                4, ("allocate", 0, (*range(1, 10),)), _mark(0), ("allocate", 1, (*range(1, 10),)), _hits_of(1)
            ),
            _manager_history(
                4, ("allocate", 0, (*range(1, 9),)), _mark(0), ("allocate", 1, (*range(1, 9),)), _hits_of(1)
            ),
            _manager_history(
                2,
                ("allocate", 0, (1, 2, 3)),
                _mark(0),
                ("append_slots", 0, 4),
                ("allocate", 1, (1, 2, 3, 4, 5)),
                _hits_of(1),
            ),
            _manager_history(
                1,
                ("allocate", 0, (1,)),
                ("append_slots", 0, 2),
                ("append_slots", 0, 3),
                _mark(0),
                ("allocate", 1, (1, 2, 3, 4)),
                _hits_of(1),
            ),
            _manager_history(
                1,
                ("allocate", 0, (1, 2)),
                ("fork", 1, 0),
                ("free", 0),
                _mark(0),
                ("allocate", 2, (1, 2, 5)),
                _hits_of(2),
            ),
            _manager_history(
                2, ("allocate", 0, (1, 2, 3, 4, 5)), ("allocate", 1, (1, 2, 7)), _mark(0), _mark(1), _hits_of(0, 1)
            ),
            _manager_history(
                2, ("allocate", 0, (1, 2, 3, 4, 5)), ("allocate", 1, (7, 8, 9)), _mark(0), _mark(1), _hits_of(0, 1)
            ),
            _manager_history(2, ("allocate", 0, (1, 2, 3, 4, 5)), ("allocate", 1, (7, 8, 9)), _mark(0), _hits_of(1, 0)),
            _manager_history(
                1,
                ("allocate", 0, (1, 2, 3)),
                ("free", 0),
                ("allocate", 1, (7, 8, 9)),
                _mark(1),
                _hits_of(1),
                num_gpu_blocks=3,
            ),
            _manager_history(2, ("allocate", 0, (1, 2, 3, 4, 5)), _mark(0), _hits_of(0), caching=False),
            _manager_history(2, ("allocate", 0, (1, 2, 3)), _mark(0), ("free", 0), _mark(0), _hits_of(0)),
        ),
        setups=_manager_sizes,
    ),
)
