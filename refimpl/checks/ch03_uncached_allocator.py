"""Chapter 03: a free list, and when a block really comes back.

The account beside the learner's allocator is one number a block: how many owners it has. Which block goes out first is
policy and is not compared; that none goes out twice, comes back early, or gets lost, is.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from numbers import Integral
from typing import Any

from refimpl.allocator import UncachedBlockAllocator
from refimpl.block import BlockTable, Device, PhysicalTokenBlock, share_block_table
from refimpl.checks.allocator_world import (
    A_BLOCK,
    DOUBLE_FREE,
    FREE_COUNT,
    OF_REFUSED_FREES,
    OWNERS,
    REFUSAL_KEEPS,
    AllocatorWorld,
)
from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, counted, equal, same_objects, show
from refimpl.checks.thoughts import asked

ONCE = "no block is out twice"
ONE_OWNER = "a block that goes out has one owner"
EMPTY_REFUSES = "an empty pool refuses with ValueError"
COMES_BACK = "a block comes back with its last owner, and only then"
GOES_OUT_AGAIN = "a block that came back can go out again"
STILL_ALLOCATES = "allocate goes on as 03-allocate asked"

ALLOCATES = (A_BLOCK, ONCE, ONE_OWNER, FREE_COUNT, EMPTY_REFUSES)
KEY_AND_LENGTH = "4711 16"  # what prefix caching passes to allocate; ignored here


class _PoolWorld(AllocatorWorld):
    """An allocator beside a ledger of owners."""

    kind = "UncachedBlockAllocator"

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.blocks: dict[str, Any] = {}  # name -> the learner's block
        self.owners: dict[str, int] = {}  # name -> owners, 0 once it has come back
        self.just_freed: list[str] = []  # came back, and nothing has gone out since
        self.came_back = False

    @property
    def free(self) -> int:
        """Free blocks by the ledger."""
        return self.total - sum(1 for owners in self.owners.values() if owners)

    def possible(self, operation: Operation) -> bool:
        verb, key, *_ = operation
        if verb == "allocate":
            return key not in self.names
        if key not in self.names:
            return False
        name = self.names[key]
        return self.owners[name] > 0 or (verb == "free" and name in self.just_freed)

    def _allocate(self, key: Any, *arguments: int) -> None:
        if not self.free:
            self._allocate_from_empty()
            return
        name, free = self.names.add(key), self.free
        raises: tuple[type[Exception], str] = (ValueError, "refuses-too-early")
        if arguments:
            raises = (TypeError, "arguments-dropped")
        elif self.came_back:
            raises = (Exception, "not-the-block-itself")
        line = f"{name} = allocator.allocate({', '.join(map(str, arguments))})"
        blocks = counted(free, "block")
        block = self.log.call(line, self.allocator.allocate, *arguments, raises=raises, blocks=blocks)
        self.check_block(block)
        self._check_nobodys(block)
        fault = "owner-not-counted" if equal(block.ref_count, 0) else None
        self.log.expect(self.named(ONE_OWNER), f"{name}.ref_count", block.ref_count, 1, fault)
        self.blocks[name], self.owners[name] = block, 1
        self.just_freed.clear()
        if self.came_back:
            self.log.hold(GOES_OUT_AGAIN, True, "", "")
        self._check_counts("not-taken-off-the-list")

    def _check_nobodys(self, block: Any) -> None:
        numbers = {self.blocks[other].block_number: other for other, owners in self.owners.items() if owners}
        number, other = block.block_number, numbers.get(block.block_number)
        should, but = "it should be a block that nobody has", f"it is block {number}, which `{other}` still is"
        self.log.hold(self.named(ONCE), other is None, should, but, "given-out-twice", number=number, other=other)

    def _allocate_from_empty(self) -> None:
        self.log.refuse(
            self.named(EMPTY_REFUSES),
            "allocator.allocate()",
            self.allocator.allocate,
            returned="empty-pool-answers",
            other_error="empty-pool-other-error",
            blocks=counted(self.total, "block"),
        )
        self._check_unchanged()

    def _share(self, key: Any) -> None:
        name = self.names[key]
        self.blocks[name].ref_count += 1
        self.owners[name] += 1
        self.log.note(f"{name}.ref_count += 1    # a second table holds {name}")
        self._check_counts(None)

    def _free(self, key: Any) -> None:
        name = self.names[key]
        line, block, owners = f"allocator.free({name})", self.blocks[name], self.owners[name]
        if not owners:
            thoughts = {"returned": "double-free-accepted", "other_error": "double-free-other-error"}
            self.log.refuse(DOUBLE_FREE, line, self.allocator.free, block, **thoughts, block=name)
            self._check_unchanged()
            return
        refused, evidence = (ValueError, "owner-refused"), {"block": name, "owners": counted(owners, "owner")}
        self.log.call(line, self.allocator.free, block, raises=refused, **evidence)
        self.owners[name] -= 1
        if not self.owners[name]:
            self.just_freed.append(name)
            self.came_back = True
        self._check_freed(name)
        self._check_counts(None)

    def _check_freed(self, name: str) -> None:
        left, got, free = self.owners[name], self.blocks[name].ref_count, self.num_free()
        evidence = {"block": name, "owners": counted(left, "owner"), "left": left, "got": show(got)}
        self.log.expect(OWNERS, f"{name}.ref_count", got, left, _owner_fault(got, left), **evidence)
        evidence |= {"number": self.blocks[name].block_number, "s": "s" if left == 1 else ""}
        evidence |= {"free": show(free), "expected": self.free}
        fault = _return_fault(free, self.free, left)
        if fault == "never-comes-back" and self._goes_out(self.blocks[name]):
            fault = None  # another one is lost
        self.log.expect(COMES_BACK, "the number of free blocks", free, self.free, fault, **evidence)

    def _goes_out(self, block: Any) -> bool:
        """Whether the block is among the free ones: all of those are taken, so this is asked when a history is over."""
        taken = [asked(self.allocator.allocate) for _ in range(self.total)]
        return any(equal(getattr(other, "block_number", None), block.block_number) for other in taken)

    def _check_unchanged(self) -> None:
        """After a refusal: the free count and every owner count are as before."""
        fault = "changed-before-refusing"
        for name, block in self.blocks.items():
            if self.owners[name] or name in self.just_freed:
                what, changed = f"{name}.ref_count", f"`{name}.ref_count`"
                self.log.expect(REFUSAL_KEEPS, what, block.ref_count, self.owners[name], fault, changed=changed)
        for what, got, expected in (
            ("the number of free blocks", self.num_free(), self.free),
            ("the number of blocks in all", self.num_total(), self.total),
        ):
            self.log.expect(REFUSAL_KEEPS, what, got, expected, fault, changed=what)

    def _check_counts(self, too_many_free: str | None) -> None:
        name, free = self.named(FREE_COUNT), self.num_free()
        fault = too_many_free if equal(free, self.free + 1) else None
        self.log.expect(name, "the number of free blocks", free, self.free, fault)
        self.log.expect(name, "the number of blocks in all", self.num_total(), self.total)
        for block, owners in self.owners.items():
            if owners:
                self.log.expect(name, f"{block}.ref_count", self.blocks[block].ref_count, owners)


class _AllocateWorld(_PoolWorld):
    """Only allocations: 03-allocate is checked before there is a free."""

    def choices(self) -> Iterable[Operation]:
        return [("allocate", self.names.new_key())]


class _FreeWorld(_PoolWorld):
    """Allocations, second owners, and frees, of blocks without an owner too."""

    def named(self, name: str) -> str:
        return STILL_ALLOCATES if name in ALLOCATES else name

    def choices(self) -> Iterable[Operation]:
        owned = [key for key, name in self.names.items() if self.owners[name]]
        yield from [("allocate", self.names.new_key())] * (2 if self.free else 1)
        yield from (("share", key) for key in owned[-2:])
        yield from (("free", key) for key in owned)
        yield from (("free", key) for key, name in self.names.items() if name in self.just_freed)


def _owner_fault(got: Any, left: int) -> str | None:
    """The misconception behind a wrong owner count after a free."""
    if equal(got, left + 1):
        return "owner-not-taken-away"
    return "all-owners-taken-away" if equal(got, 0) else None


def _return_fault(free: Any, expected: int, left: int) -> str | None:
    """The misconception behind a wrong number of free blocks after a free that left `left` owners."""
    if equal(free, expected + 1):
        return "freed-while-shared" if left else "comes-back-twice"
    return "never-comes-back" if equal(free, expected - 1) and not left else None


def _pool_sizes(rng: random.Random) -> Setup:
    num_blocks = rng.choice((1, 2, 3, 4, 5, 6, 20))
    return {"num_blocks": num_blocks, "block_size": rng.choice((1, 4, 16)), "device": rng.randint(1, 2)}


def _pool_history(num_blocks: int, *operations: str) -> History:
    return History.read({"num_blocks": num_blocks, "block_size": 16, "device": 1}, *operations)


SAME_BLOCKS = "the new table holds the same blocks in the same order"
OWN_LIST = "the new table is a list of its own"
ONE_MORE_OWNER = "every shared block has one owner more"
OTHERS_KEEP = "the first table and all other blocks stay as they were"


class _ShareWorld(World):
    """Block tables made by the check; the ledger is the tables themselves: a block's owners are those that list it."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.blocks = [PhysicalTokenBlock(Device.GPU, number, block_size=16) for number in range(setup["num_blocks"])]
        self.unused = list(self.blocks)
        log.note(f"allocator = UncachedBlockAllocator(Device.GPU, block_size=16, num_blocks={setup['num_blocks']})")
        self.tables: dict[str, list[PhysicalTokenBlock]] = {}  # name -> what the table must hold
        self.given: dict[str, Any] = {}  # name -> the list object itself
        self.names = Names("table_")

    def choices(self) -> Iterable[Operation]:
        new = self.names.new_key()
        yield from (("table", new, size) for size in range(min(6, len(self.unused)) + 1))
        yield from (("share_block_table", new, key) for key in self.names)
        yield from (("grow", key) for key in self.names if self.unused)

    def possible(self, operation: Operation) -> bool:
        verb, key, *arguments = operation
        if verb == "grow":
            return key in self.names and bool(self.unused)
        fits = arguments[0] <= len(self.unused) if verb == "table" else arguments[0] in self.names
        return key not in self.names and fits

    def _take(self) -> PhysicalTokenBlock:
        block = self.unused.pop()
        block.ref_count = 1
        return block

    def _table(self, key: Any, size: int) -> None:
        name = self.names.add(key)
        self.given[name] = [self._take() for _ in range(size)]
        self.tables[name] = list(self.given[name])
        blocks = f"[allocator.allocate() for _ in range({size})]" if size else "[]"
        self.log.note(f"{name} = {blocks}    # blocks {_numbers(self.tables[name])}")

    def _grow(self, key: Any) -> None:
        name, block = self.names[key], self._take()
        self.given[name].append(block)
        self.tables[name].append(block)
        self.log.note(f"{name}.append(allocator.allocate())    # block {block.block_number}")
        self._check_tables()

    def _share_block_table(self, child_key: Any, parent_key: Any) -> None:
        parent, child = self.names[parent_key], self.names.add(child_key)
        line = f"{child} = share_block_table({parent})"
        new_table = self.log.call(line, self.subject, self.given[parent])
        wanted = self.tables[parent]
        self.log.hold(
            SAME_BLOCKS,
            isinstance(new_table, list),
            f"it should return the list of the blocks {_numbers(wanted)}",
            f"it returned {show(new_table)}",
            "table-not-returned" if new_table is None else None,
        )
        twin = next((name for name, given in self.given.items() if given is new_table), None)
        self.log.hold(
            OWN_LIST,
            twin is None,
            "it should be a list of its own",
            f"it is `{twin}` itself",
            "same-list",
            twin=twin,
            child=child,
        )
        self._check_same_blocks(new_table, wanted)
        self.tables[child], self.given[child] = list(wanted), new_table
        for block in wanted:
            self._check_owners(block, "shared", ONE_MORE_OWNER)
        self._check_tables()

    def _check_same_blocks(self, new_table: list[Any], wanted: BlockTable) -> None:
        same = same_objects(new_table, wanted)
        numbers = _numbers(wanted)
        misconception, but = None, f"it holds {_seen(new_table)}"
        if not same and equal(new_table, numbers):
            misconception, but = "numbers-instead-of-blocks", "it holds these numbers"
        elif not same and [getattr(block, "block_number", None) for block in new_table] == numbers:
            misconception, but = "blocks-copied", "it holds new objects"
        elif not same and same_objects(new_table, wanted[:-1]):
            misconception = "last-block-left-out"
        elif not same and same_objects(new_table, wanted[::-1]):
            misconception = "turned-round"
        self.log.hold(
            SAME_BLOCKS,
            same,
            f"it should hold the blocks {numbers}, the same objects",
            but,
            misconception,
            numbers=numbers,
            last=numbers[-1] if numbers else None,
        )

    def _check_owners(self, block: PhysicalTokenBlock, role: str, name: str) -> None:
        owners = sum(block in table for table in self.tables.values())
        self.log.expect(
            name,
            f"ref_count of block {block.block_number}",
            block.ref_count,
            owners,
            _sharing_fault(block.ref_count, owners) if role == "shared" else None,
            block=block.block_number,
            owners=owners,
            got=show(block.ref_count),
        )

    def _check_tables(self) -> None:
        for name, wanted in self.tables.items():
            given = self.given[name]
            should, but = f"`{name}` should still hold the blocks {_numbers(wanted)}", f"it holds {_seen(given)}"
            self.log.hold(OTHERS_KEEP, same_objects(given, wanted), should, but)
        for block in self.blocks:
            self._check_owners(block, "other", OTHERS_KEEP)
            for field, was in (("last_accessed", -1), ("computed", False)):
                now = getattr(block, field)
                told = {"field": field, "block": block.block_number, "was": was, "now": show(now)}
                what = f"{field} of block {block.block_number}"
                self.log.expect(OTHERS_KEEP, what, now, was, "block-marked", **told)


def _seen(given: list[Any]) -> str:
    """A learner's table, blocks as their numbers."""
    return show([block.block_number if isinstance(block, PhysicalTokenBlock) else block for block in given])


def _numbers(block_table: BlockTable) -> list[int]:
    return [block.block_number for block in block_table]


def _sharing_fault(got: Any, owners: int) -> str | None:
    """The misconception behind a wrong owner count after sharing."""
    if equal(got, owners - 1):
        return "sharing-not-counted" if owners == 2 else "two-is-not-the-number-of-owners"
    return "counted-more-than-once" if isinstance(got, Integral) and int(got) > owners else None


def _table_history(num_blocks: int, *operations: str) -> History:
    return History.read({"num_blocks": num_blocks}, *operations)


def _table_sizes(rng: random.Random) -> Setup:
    return {"num_blocks": rng.randint(1, 8)}


STEPS = (
    Step(
        exercise_id="03-allocate",
        title="hand out a free block",
        points=3,
        subject="UncachedBlockAllocator",
        writes=("allocate",),
        needs=("get_num_free_blocks", "get_num_total_blocks"),
        reference=(UncachedBlockAllocator.allocate,),
        properties=(A_BLOCK, ONCE, ONE_OWNER, FREE_COUNT, EMPTY_REFUSES, REFUSAL_KEEPS),
        misconceptions={
            "block-not-returned": "Whoever calls `allocate` must learn which block it got: yours returned None.",
            "number-instead-of-block": "The caller gets the block and not its number, because the owner count is on "
            "the block: yours returned {number}.",
            "made-up-block": "An allocator hands out the blocks of its pool and adds none: this pool has {blocks}, "
            "numbered from 0, and yours handed out block {number}.",
            "given-out-twice": "A block that has an owner is not free: you handed out block {number} while `{other}` "
            "still is that block, so two sequences would write over each other.",
            "not-taken-off-the-list": "A block that goes out leaves the free list: yours is still counted as free.",
            "owner-not-counted": "A block has an owner from the moment it goes out: its `ref_count` must be 1, and "
            "yours is still 0.",
            "refuses-too-early": "A pool may give away its last block: yours had {blocks} free and refused.",
            "arguments-dropped": "Both arguments stay in the signature, because chapter 4 passes them: yours ended in "
            "{error}.",
            "empty-pool-answers": "An empty pool has to say no: none of its blocks is left ({blocks}), so "
            "`allocate` must raise ValueError, or the caller goes on as if it had memory.",
            "empty-pool-other-error": "The error for an empty pool is ValueError, raised on purpose, since that is "
            "what a caller waits for: yours ended in {error}.",
        },
        world=_AllocateWorld,
        examples=(
            _pool_history(3, "allocate a", "allocate b", "allocate c", "allocate d"),
            _pool_history(1, "allocate a", "allocate b", "allocate c"),
            _pool_history(3, "allocate a", *(f"allocate {name} {KEY_AND_LENGTH}" for name in "bc")),
        ),
        setups=_pool_sizes,
    ),
    Step(
        exercise_id="03-free",
        title="take a block back",
        points=4,
        subject="UncachedBlockAllocator",
        writes=("free",),
        needs=("allocate", "get_num_free_blocks", "get_num_total_blocks"),
        after=("03-allocate",),
        reference=(UncachedBlockAllocator.free,),
        properties=(
            OWNERS,
            COMES_BACK,
            GOES_OUT_AGAIN,
            DOUBLE_FREE,
            REFUSAL_KEEPS,
            STILL_ALLOCATES,
        ),
        misconceptions={
            "freed-while-shared": "A block comes back when its last owner lets go, and not before: you returned block "
            "{number} while {owners} still hold{s} it.",
            "never-comes-back": "A block whose last owner has let go is free again: nobody holds `{block}` now, and it "
            "is not among the free blocks.",
            "comes-back-twice": "A block is on the free list once: the number of free blocks after `free({block})` is "
            "{expected} and yours is {free}, so the same block would go out to two owners.",
            "owner-not-taken-away": "`free` is one owner letting go, so the count falls by one: `{block}.ref_count` "
            "must be {left} now, and yours is still {got}.",
            "all-owners-taken-away": "`free` speaks for one owner and not for all of them: `{block}` still has "
            "{owners}, and its count says 0.",
            "not-the-block-itself": "What `free` puts back is what `allocate` hands out next, so it must be the block "
            "itself (not its number): once a block had come back, `allocate` ended in {error}.",
            "owner-refused": "Every owner may let go, be the block shared or not: `{block}` had {owners}, and your "
            "`free` raised ValueError.",
            **OF_REFUSED_FREES,
        },
        world=_FreeWorld,
        examples=(
            _pool_history(3, "allocate a", "share a", "free a", "free a", "free a"),
            _pool_history(1, "allocate a", "free a", "allocate b", "allocate c", "free b"),
            _pool_history(2, "allocate a", "free a", "free a", "allocate b", "allocate c"),
            _pool_history(1, "allocate a", "share a", "share a", "free a", "free a"),
        ),
        setups=_pool_sizes,
    ),
    Step(
        exercise_id="03-share",
        title="one more owner",
        points=3,
        subject="share_block_table",
        reference=(share_block_table,),
        properties=(SAME_BLOCKS, OWN_LIST, ONE_MORE_OWNER, OTHERS_KEEP),
        misconceptions={
            "table-not-returned": "The new owner needs a table of its own: your function returned None.",
            "same-list": "Two owners need two lists: you returned `{twin}` itself, and a block appended to `{child}` "
            "would stand in both.",
            "numbers-instead-of-blocks": "A block table holds the blocks and not their numbers, because the owner "
            "count is on the block: yours holds {numbers}.",
            "blocks-copied": "Sharing copies the list and not the blocks: you made new block objects, and an owner "
            "counted on a copy is one that nobody else sees.",
            "last-block-left-out": "All of a table is shared, the block that may be partly full as well: yours leaves "
            "out the last one, block {last}.",
            "turned-round": "The order of a block table is the order of the text: the new one has to hold the blocks "
            "{numbers} from front to back.",
            "sharing-not-counted": "Every table that holds a block counts: block {block} stands in {owners} tables "
            "now, and its `ref_count` is still {got}.",
            "two-is-not-the-number-of-owners": "A table can be shared more than once, so raise the count that is "
            "there: block {block} stands in {owners} tables, and its `ref_count` is {got}.",
            "block-marked": "To share a block is not to use it: the `{field}` of block {block} was {was}, and is {now} "
            "after your call, so leave it as it was.",
            "counted-more-than-once": "One new table is one new owner of each of its blocks: block {block} stands in "
            "{owners} tables, and its `ref_count` is {got}.",
        },
        world=_ShareWorld,
        examples=(
            _table_history(3, "table a 2", "share_block_table b a", "grow b"),
            _table_history(2, "table a 1", "share_block_table b a", "share_block_table c a"),
            _table_history(1, "table a 0", "share_block_table b a", "grow b"),
        ),
        setups=_table_sizes,
    ),
)
