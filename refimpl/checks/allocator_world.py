"""A learner's allocator, of one kind or the other: what chapters 03 and 04 play histories on.

A chapter's world keeps its own account of owners. What `allocate` returned is called a, b, c … in that order.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from refimpl.block import Device
from refimpl.checks.step import Log, Names, Setup, World, counted, show

A_BLOCK = "returns a block of this pool"
FREE_COUNT = "the free count follows"
REFUSAL_KEEPS = "a refused call changes nothing"
OWNERS = "free takes one owner away"
DOUBLE_FREE = "a block without an owner is refused with ValueError"

OF_REFUSED_FREES = {  # what is said of a free that must be refused
    "double-free-accepted": "To free a block that nobody holds is a mistake of the caller's, and silence would "
    "hide it: `{block}` had 0 owners, so raise ValueError.",
    "double-free-other-error": "The error for a block without an owner is ValueError, since that is what a "
    "caller waits for: yours raised {error}.",
    "changed-before-refusing": "A call that is refused leaves everything as it was: look at the count before "
    "you change it, yours changed {changed} before it raised.",
}


class AllocatorWorld(World):
    """An allocator of one pool."""

    kind = ""  # of allocator: what the class is called in the histories
    fields: tuple[str, ...] = ("device", "block_number", "block_size", "ref_count")  # that a block must have

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.total, self.block_size, self.device = setup["num_blocks"], setup["block_size"], Device(setup["device"])
        self.names = Names()
        sizes = f"Device.{self.device.name}, block_size={self.block_size}, num_blocks={self.total}"
        line = f"allocator = {self.kind}({sizes})"
        self.allocator = log.call(line, subject, self.device, self.block_size, self.total)

    def named(self, name: str) -> str:
        """The property of this step under which another step's property is compared."""
        return name

    def num_free(self) -> Any:
        """Free blocks by the learner's count."""
        return self.log.ask("allocator.get_num_free_blocks()", self.allocator.get_num_free_blocks)

    def num_total(self) -> Any:
        """All blocks by the learner's count."""
        return self.log.ask("allocator.get_num_total_blocks()", self.allocator.get_num_total_blocks)

    def check_block(self, block: Any) -> None:
        """What went out is a block of this pool."""
        name, evidence = self.named(A_BLOCK), {"blocks": counted(self.total, "block")}
        fits = all(hasattr(block, field) for field in self.fields)
        thought = "block-not-returned" if block is None else None
        if isinstance(block, Integral):
            thought = "number-instead-of-block"
        should = "it should return a PhysicalTokenBlock"
        self.log.hold(name, fits, should, f"it returned {show(block)}", thought, number=show(block), **evidence)
        is_number, number = isinstance(block.block_number, Integral), show(block.block_number)
        in_pool = is_number and 0 <= int(block.block_number) < self.total
        should = f"its block_number should be 0 or more and below {self.total}"
        thought = "made-up-block" if is_number else None
        self.log.hold(name, in_pool, should, f"it is {number}", thought, number=number, **evidence)
        self.log.expect(name, "its device", block.device, self.device)
        self.log.expect(name, "its block_size", block.block_size, self.block_size)
