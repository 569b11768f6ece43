"""04-allocate and 04-free: the block of a content, and what becomes of it when its last owner lets go.

The account knows whose content a block holds, its owners and its stamp; of the number of a new block it knows nothing.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable
from typing import Any

from refimpl.allocator import CachedBlockAllocator
from refimpl.checks.allocator_world import (
    A_BLOCK,
    DOUBLE_FREE,
    FREE_COUNT,
    OF_REFUSED_FREES,
    OWNERS,
    REFUSAL_KEEPS,
    AllocatorWorld,
)
from refimpl.checks.ch04_cached_allocator.evictor import Content
from refimpl.checks.step import History, Log, Operation, Setup, Step, counted, equal, show

HIT_LIVE = "a hit on a live block adds an owner"
HIT_FREED = "a hit on a freed block takes it back as it was"
NEW_FIRST = "blocks that do not exist yet go out before any content is given up"
LRU_GOES = "then the least recently used content is given up"
LABELLED = "what goes out on a miss carries its new key and nothing of the old"
NEVER_SHARED = "different content never shares a block"
FOUND = "a key is found exactly while its content is there"
EMPTY_REFUSES = "a pool without a free block refuses with ValueError"
STAYS = "a freed block is free and stays addressable"
AS_IT_WAS = "a freed block keeps its key, its stamp and whether it is computed"
SECOND_LIFE = "what was freed can be had again, or is given up in its turn"
STILL_ALLOCATES = "allocate goes on as 04-allocate asked"

ALLOCATES = A_BLOCK, HIT_LIVE, HIT_FREED, NEW_FIRST, LRU_GOES, LABELLED, NEVER_SHARED, FOUND, FREE_COUNT, EMPTY_REFUSES


class _CacheWorld(AllocatorWorld):
    """An allocator beside an account of contents."""

    kind = "CachedBlockAllocator"
    fields = (*AllocatorWorld.fields, "computed", "last_accessed", "block_hash", "num_hashed_tokens")
    keys: tuple[int, ...] = (1, 2, 3, 4, 0)

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.held: dict[str, tuple[Any, Content]] = {}  # name -> the learner's block, while this owner holds it
        self.let_go: dict[str, tuple[Any, Content]] = {}
        self.live: list[Content] = []
        self.free: list[Content] = []
        self.asked_for: list[int] = []  # content keys, each once
        self.turn = 0

    def _thought(self, misconception: str | None) -> str | None:
        """What is behind the symptom, where another step's answer may be."""
        return misconception

    def _hold(self, prop: str, holds: bool, should: str, but: str, thought: str | None, /, **evidence: Any) -> None:
        evidence |= {"blocks": counted(self.total, "block")}
        self.log.hold(self.named(prop), holds, should, but, thought, **evidence)

    def _expect(self, prop: str, what: str, got: Any, should: Any, thought: str | None = None, /, **more: Any) -> None:
        evidence = {"got": show(got), "expected": show(should), "changed": what, **more}
        self.log.expect(self.named(prop), what, got, should, self._thought(thought), **evidence)

    def _field(self, prop: str, name: str, what: str, should: Any, thought: str | None = None, /, **more: Any) -> None:
        """Property `prop`: what the block called `name` says of itself."""
        block, content = (self.held | self.let_go)[name]
        more |= {"name": name, "what": what, "key": content.said, "changed": f"`{name}.{what}`"}
        self._expect(prop, f"{name}.{what}", getattr(block, what), should, thought, **more)

    @property
    def right_free(self) -> int:
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

    def _use(self, key: Hashable, now: int) -> None:
        name = self.names[key]
        block, content = self.held[name]
        block.last_accessed = content.stamp = now
        self.log.note(f"{name}.last_accessed = {now}")

    def _compute(self, key: Hashable) -> None:
        name = self.names[key]
        block, content = self.held[name]
        block.computed = content.computed = True
        self.log.note(f"{name}.computed = True")

    def _allocate(self, key: Hashable, content_key: int | None = None) -> None:
        wanted = Content(content_key, 0 if content_key is None else self.block_size * (1 + content_key % 3))
        arguments = () if content_key is None else (content_key, wanted.hashed)
        call = f"allocator.allocate({', '.join(map(str, arguments))})"
        if content_key is not None and content_key not in self.asked_for:
            self.asked_for.append(content_key)
        live, freed = self._of_key(self.live, content_key), self._of_key(self.free, content_key)
        blocks, exist = counted(self.total, "block"), len(self.live) + len(self.free)
        if live is None and freed is None and not self.right_free:
            thoughts = {"returned": "empty-pool-answers", "other_error": "empty-pool-other-error"}
            refused = self.named(EMPTY_REFUSES)
            self.log.refuse(refused, call, self.allocator.allocate, *arguments, **thoughts, blocks=blocks)
            self._check_unchanged()
            return
        name = self.names.add(key)
        refusal = "full-pool-refuses-a-hit" if live else "refuses-too-early" if exist < self.total else "never-evicts"
        raises = None if freed else (ValueError, refusal)
        evidence = {"key": content_key, "blocks": blocks, "free": self.right_free}
        line = f"{name} = {call}"
        block = self.log.call(line, self.allocator.allocate, *arguments, raises=raises, **evidence)
        self.check_block(block)
        if live is not None:
            self._hit_live(name, block, live)
        elif freed is not None:
            self._hit_freed(name, block, freed)
        else:
            self._miss(name, block, wanted, exist)
        self._check_everything(name)

    def _of_key(self, contents: list[Content], key: int | None) -> Content | None:
        return next((content for content in contents if key is not None and content.key == key), None)

    def _holder(self, content: Content | None) -> str | None:
        """One of those who hold this content."""
        return next((name for name, (_, held) in self.held.items() if held is content), None)

    def _hit_live(self, name: str, block: Any, content: Content) -> None:
        holder = self._holder(content)
        thought = "zero-is-no-key" if content.key == 0 else "live-key-new-block"
        if content.key and not equal(block.block_number, content.number) and not self._contains(content.key):
            thought = "not-filed"
        self._check_hit(HIT_LIVE, block, content, f"`{holder}` is", thought, holder=holder)
        content.owners += 1
        self.held[name] = block, content
        owners, one_less = counted(content.owners, "owner"), equal(block.ref_count, content.owners - 1)
        thoughts = "live-hit-not-counted" if one_less else None
        self._field(HIT_LIVE, name, "ref_count", content.owners, thoughts, owners=owners)
        self._field(HIT_LIVE, name, "computed", content.computed, "taken-back-as-new")
        self._field(HIT_LIVE, name, "last_accessed", content.stamp, "taken-back-as-new")

    def _hit_freed(self, name: str, block: Any, content: Content) -> None:
        thought = "zero-is-no-key" if content.key == 0 else "freed-not-found"
        self._check_hit(HIT_FREED, block, content, "was freed with this key", thought)
        self.free.remove(content)
        self._take(HIT_FREED, name, block, content)
        self._field(HIT_FREED, name, "computed", content.computed, "taken-back-as-new")
        self._field(HIT_FREED, name, "last_accessed", content.stamp, "taken-back-as-new")
        self._check_free_count("hit-stays-in-evictor", name)

    def _check_hit(self, name: str, block: Any, content: Content, which: str, thought: str, **evidence: Any) -> None:
        number, got = content.number, block.block_number
        evidence |= {"key": content.key, "number": number, "got": got}
        should, but = f"it should be block {number}, which {which}", f"it is block {got}"
        self._hold(name, equal(got, number), should, but, thought, **evidence)

    def _miss(self, name: str, block: Any, content: Content, exist: int) -> None:
        self._check_not_shared(name, block, content)
        freed = next((c for c in self.free if equal(block.block_number, c.number)), None)
        evidence = {"number": block.block_number, "other": freed.said if freed else ""}
        but = f"it is block {block.block_number}"
        if exist < self.total:
            should = "it should be a block that has never been used"
            but += f", where the content of {evidence['other']} was kept"
            evidence |= {"key": evidence["other"], "unused": counted(self.total - exist, "block")}
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

    def _check_not_shared(self, name: str, block: Any, content: Content) -> None:
        twin = next((c for c in self.live if equal(block.block_number, c.number)), None)
        thought = "given-out-twice"
        if twin is not None and equal(block.ref_count, twin.owners + 1) and None in (twin.key, content.key):
            thought = "none-is-a-key" if twin.key == content.key else "anonymous-key-collides"
        holder = self._holder(twin)
        but = f"it is block {block.block_number}, which `{holder}` still is"
        evidence = {"name": name, "number": block.block_number, "other": holder, "key": content.said}
        evidence |= {"other_key": twin.said if twin else ""}
        self._hold(NEVER_SHARED, twin is None, "it should be a block that nobody has", but, thought, **evidence)

    def _take(self, name_of_property: str, name: str, block: Any, content: Content) -> None:
        """The account of a block that has its first owner now."""
        self.live.append(content)
        content.owners = 1
        self.held[name] = block, content
        self._field(name_of_property, name, "ref_count", 1, "owner-not-counted" if equal(block.ref_count, 0) else None)

    def _free(self, key: Hashable) -> None:
        """Without a comparison: 04-allocate is checked before there is a free of the learner's."""
        name = self.names[key]
        block, content = self.held[name]
        is_anonymous = content.key is None and isinstance(self.allocator, CachedBlockAllocator)
        raises = (KeyError, "anonymous-not-filed") if is_anonymous else None
        self.log.call(f"allocator.free({name})", self.allocator.free, block, raises=raises, name=name)
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

    def _check_unchanged(self) -> None:
        """After a refusal."""
        thought = "changed-before-refusing"
        for name, (_, content) in self.held.items():
            self._field(REFUSAL_KEEPS, name, "ref_count", content.owners, thought)
        self._expect(REFUSAL_KEEPS, "the number of free blocks", self.num_free(), self.right_free, thought)
        for key in self.asked_for:
            self._check_found(key, REFUSAL_KEEPS, thought)

    def _check_free_count(self, one_too_many: str | None, name: str) -> None:
        free = self.num_free()
        thought = one_too_many if equal(free, self.right_free + 1) else None
        self._expect(FREE_COUNT, "the number of free blocks", free, self.right_free, thought, name=name)

    def _check_everything(self, newest: str = "") -> None:
        self._check_free_count(None, newest)
        self._expect(FREE_COUNT, "the number of blocks in all", self.num_total(), self.total)
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

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        if issubclass(subject, CachedBlockAllocator):
            subject = type(subject.__name__, (subject,), {"free": CachedBlockAllocator.free})
        super().__init__(subject, setup, log)


class _FreeWorld(_CacheWorld):
    """Frees, of blocks without an owner too."""

    keys = (1, 2, 3)

    def named(self, name: str) -> str:
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

    def _free(self, key: Hashable) -> None:
        name = self.names[key]
        line, free = f"allocator.free({name})", self.allocator.free
        if name not in self.held:
            thoughts = {"returned": "double-free-accepted", "other_error": "double-free-other-error"}
            self.log.refuse(DOUBLE_FREE, line, free, self.let_go[name][0], **thoughts, block=name)
            self._field(REFUSAL_KEEPS, name, "ref_count", 0, "changed-before-refusing")
            self._check_unchanged()
            return
        block, content = self.held[name]
        owners = counted(content.owners, "owner")
        self.log.call(line, free, block, raises=(ValueError, "owner-refused"), name=name, owners=owners)
        self._lower(name)
        self._check_freed(name, block, content)
        self._check_everything()

    def _check_freed(self, name: str, block: Any, content: Content) -> None:
        left, free = content.owners, self.num_free()
        owners = counted(left, "owner")
        thought = "all-owners-taken-away" if equal(block.ref_count, 0) else None
        if equal(block.ref_count, left + 1):
            thought = "owner-not-taken-away"
        self._field(OWNERS, name, "ref_count", left, thought, owners=owners)
        thought = "comes-back-while-shared" if equal(free, self.right_free + 1) and left else None
        if equal(free, self.right_free - 1) and not left:
            thought = "never-comes-back"
        evidence = {"name": name, "number": content.number, "owners": owners, "s": "s" if left == 1 else ""}
        self._expect(STAYS, "the number of free blocks", free, self.right_free, thought, **evidence)
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
    return History.read({"num_blocks": num_blocks, "block_size": 16, "device": 1}, *operations)


STEPS = (
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
            "anonymous-not-filed": "A block without a content key is live like any other: `{name}` is not filed under "
            "its AnonymousKey, where `free`, which is given here, looks for it: it ended in {error}.",
            "freed-not-found": "A freed block is still a hit: key {key} was waiting in block {number}, computed "
            "perhaps, and yours handed out block {got}.",
            "hit-stays-in-evictor": "A block that is taken back is free no longer: `{name}` has an owner, and the "
            "free count is {got} where {expected} is right, so it could be given up while in use.",
            "taken-back-as-new": "A hit leaves a block as it was, which is what it is good for: `{name}.{what}` was "
            "{expected} and is {got}.",
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
            _pool_history(1, "allocate a", "free a", "allocate b"),
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
            **OF_REFUSED_FREES,
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
)
