"""What learners hand in: chapter 3's class with its given methods, and solutions loaded from files one at a time.

The given part is written out again here, so that a test of the checks leans on neither the notebook nor refimpl.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from refimpl import Device, PhysicalTokenBlock
from refimpl.checks.step import Step

TESTS = Path(__file__).parents[1]
SUFFIX = "__"  # mutants/03-free/never-comes-back__looks-before-counting.py shows never-comes-back another way


def allocate(self: Any, block_hash: int | None = None, num_hashed_tokens: int = 0) -> PhysicalTokenBlock:
    if not self.free_blocks:
        raise ValueError(f"all {self.num_blocks} blocks are in use")
    block = self.free_blocks.pop()
    block.ref_count = 1
    return block


def free(self: Any, block: PhysicalTokenBlock) -> None:
    if block.ref_count == 0:
        raise ValueError(f"block {block.block_number} has no owner")
    block.ref_count -= 1
    if block.ref_count == 0:
        self.free_blocks.append(block)


def share_block_table(block_table: list[PhysicalTokenBlock]) -> list[PhysicalTokenBlock]:
    for block in block_table:
        block.ref_count += 1
    return block_table.copy()


def wasted_slots(reserved: int, used: int) -> int:
    return reserved - used


def allocator(**methods: Callable[..., Any]) -> type:
    """A new class of the learner's, solved; `methods` replace the good ones, and None takes one away."""

    class UncachedBlockAllocator:
        def __init__(self, device: Device, block_size: int, num_blocks: int) -> None:
            self.device = device
            self.block_size = block_size
            self.num_blocks = num_blocks
            self.free_blocks = [PhysicalTokenBlock(device, number, block_size) for number in range(num_blocks)]

        def get_num_free_blocks(self) -> int:
            return len(self.free_blocks)

        def get_num_total_blocks(self) -> int:
            return self.num_blocks

    for name, method in {"allocate": allocate, "free": free, **methods}.items():
        if method is not None:
            setattr(UncachedBlockAllocator, name, method)
    return UncachedBlockAllocator


FUNCTIONS = {"share_block_table": share_block_table, "wasted_slots": wasted_slots}


def subject(step: Step, answer: Callable[..., Any] | None = None) -> Any:
    """What a learner passes to this step's check: solved, or with `answer` in place of what the step asks for."""
    if not step.writes:
        return answer or FUNCTIONS[step.subject]
    return allocator(**{step.writes[0]: answer} if answer else {})


def load(path: Path) -> dict[str, Any]:
    """The names that a file defines."""
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def mutants() -> Iterator[tuple[str, str, Path]]:
    """(exercise id, misconception, file) of every wrong solution."""
    for path in sorted((TESTS / "mutants").glob("*/*.py")):
        yield path.parent.name, path.stem.partition(SUFFIX)[0], path
