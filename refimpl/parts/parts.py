"""Parts that make a scheduler, a block manager, a cache and attention: a learner's, and the reference's for the rest.

A part of another design, an array for a dictionary, is as good as any: what it is asked for are the public methods. An
error that comes out of a learner's function names the part.
"""

from __future__ import annotations

import dataclasses
import linecache
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import CodeType
from typing import TYPE_CHECKING, Any

from refimpl.allocator import CachedBlockAllocator, UncachedBlockAllocator
from refimpl.block import Device
from refimpl.block_manager import BlockSpaceManager
from refimpl.checks.engine import NOT_THE_LEARNERS
from refimpl.checks.step import one_line
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.parts.graft import completed, is_refimpls, own_code, with_names
from refimpl.prefix_hash import PrefixKeys
from refimpl.scheduler import Scheduler

if TYPE_CHECKING:
    from torch import Tensor

    from refimpl.device.attention import AttentionMetadata
    from refimpl.device.kv_cache import KVCache


class PartError(RuntimeError):
    """A learner's part failed while it served; the text names the part, the function and the line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What the table says of one part: whose it is and its points.

    where: the file, and when it was saved. why: the reason that it is not yours.
    """

    part: str
    is_yours: bool
    points: float
    max_points: int
    where: str
    why: str

    @property
    def whose(self) -> str:
        """In a word."""
        return "yours" if self.is_yours else "refimpl's"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """Whose parts an engine or a simulator is made of; what is left out is refimpl's.

    Args:
        block: the class of a block, chapter 1's PhysicalTokenBlock.
        uncached_allocator: chapter 3's UncachedBlockAllocator.
        prefix_keys, evictor, cached_allocator: chapter 4's PrefixKeys, LRUEvictor and CachedBlockAllocator.
        manager: a BlockSpaceManager. One that is not built on refimpl's has blocks and allocators of its own.
        scheduler: a Scheduler.
        slot_mapping, write, copy, swap: chapter 9's slot_mapping, reshape_and_cache, copy_blocks and swap_blocks.
        attention: chapter 10's paged_attention.
        functions: small functions that the manager calls, by name: distinct_blocks, share_block_table,
            num_watermark_blocks.
        rows: of the table, where `collect` made these parts.

    Raises:
        ValueError: when one of them is refimpl's own.

    >>> from refimpl import Scheduler
    >>> Parts(scheduler=Scheduler)
    Traceback (most recent call last):
    ...
    ValueError: scheduler: Scheduler is refimpl's own; leave it out, and refimpl's is used
    """

    block: type | None = None
    uncached_allocator: type | None = None
    prefix_keys: type | None = None
    evictor: type | None = None
    cached_allocator: type | None = None
    manager: type | None = None
    scheduler: type | None = None
    slot_mapping: Callable[..., Any] | None = None
    write: Callable[..., Any] | None = None
    copy: Callable[..., Any] | None = None
    swap: Callable[..., Any] | None = None
    attention: Callable[..., Any] | None = None
    functions: Mapping[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    rows: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        for name, part in self._given():
            if is_refimpls(part):
                raise ValueError(f"{name}: {part.__name__} is refimpl's own; leave it out, and refimpl's is used")

    def _given(self) -> Iterator[tuple[str, Any]]:
        """Every part that is the learner's, with its name."""
        for field in dataclasses.fields(self):
            part = getattr(self, field.name)
            if field.name not in ("functions", "rows") and part is not None:
                yield field.name, part
        yield from self.functions.items()

    def table(self) -> str:
        """Part, whose it is, points, and the file with the time it was saved; then why, where it is not yours."""
        lines = [f"{'part':<22}{'whose':<12}{'points':<10}file, saved"]
        for row in self.rows:
            points = f"{row.points:g} of {row.max_points}"
            lines.append(f"{row.part:<22}{row.whose:<12}{points:<10}{'; '.join(filter(None, (row.where, row.why)))}")
        return "\n".join(lines)

    def make_scheduler(
        self, scheduler_config: SchedulerConfig, cache_config: CacheConfig, *, log_decisions: bool = False
    ) -> Any:
        """A scheduler over a block manager of these parts."""
        more = {"log_decisions": True} if log_decisions else {}
        manager = self.make_block_manager(cache_config)
        with self.at_work():
            return (self.scheduler or Scheduler)(scheduler_config, cache_config, block_manager=manager, **more)

    def make_block_manager(self, cache_config: CacheConfig) -> Any:
        """A block manager of these parts, with pools of the sizes that `cache_config` says.

        Raises:
            ValueError: when the sizes are not known.
        """
        sizes = cache_config.num_gpu_blocks, cache_config.num_cpu_blocks
        if None in sizes:
            raise ValueError("cache_config has no num_gpu_blocks and num_cpu_blocks yet, a block manager needs both")
        caching = cache_config.enable_prefix_caching
        with self.at_work():
            manager_class = with_names(self.manager or BlockSpaceManager, self.functions)
            manager = manager_class(cache_config.block_size, *sizes, enable_caching=caching)
            if isinstance(manager, BlockSpaceManager):
                make = self._cached_allocator if caching else self._uncached_allocator
                if make is not None:
                    manager.gpu_allocator, manager.cpu_allocator = (
                        make(device, cache_config.block_size, size)
                        for device, size in zip((Device.GPU, Device.CPU), sizes, strict=True)
                    )
                if self.prefix_keys or self.evictor or self.cached_allocator:
                    manager.prefix_keys = _never_forgetting(self.prefix_keys or PrefixKeys)()
        return manager

    @property
    def _uncached_allocator(self) -> Callable[..., Any] | None:
        """What makes an allocator without prefix caching; None where nothing in it is the learner's."""
        if self.uncached_allocator is None and self.block is None:
            return None
        return self._allocator_class(self.uncached_allocator or UncachedBlockAllocator)

    @property
    def _cached_allocator(self) -> Callable[..., Any] | None:
        """The same with prefix caching; the evictor is put into an allocator that has one."""
        if self.cached_allocator is None and self.evictor is None and self.block is None:
            return None
        cls = self._allocator_class(self.cached_allocator or CachedBlockAllocator)

        def make(device: Device, block_size: int, num_blocks: int) -> Any:
            allocator = cls(device, block_size, num_blocks)
            if self.evictor is not None and hasattr(allocator, "evictor"):
                allocator.evictor = self.evictor()
            return allocator

        return make

    def _allocator_class(self, cls: type) -> type:
        """An allocator of the learner's blocks, with what a block manager asks of one and no exercise does."""
        blocks = {"PhysicalTokenBlock": self.block} if self.block is not None else {}
        return completed(with_names(cls, blocks), _AllocatorQuestions)

    def make_kv_cache(self, *shape: Any) -> KVCache:
        """Pools that these parts write, copy and swap; `shape` is the arguments of `KVCache`."""
        from refimpl.device.given_cache import GivenKVCache

        return GivenKVCache(*shape, write=self.write, copy=self.copy, swap=self.swap)

    def slots(self, block_table: list[int], positions: Sequence[int], block_size: int) -> Tensor:
        """Where the tokens at these positions keep their keys and values: `slot_mapping`."""
        from refimpl.device.kv_cache import slot_mapping

        return (self.slot_mapping or slot_mapping)(block_table, positions, block_size)

    def decode(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Attention of one new token a sequence, shapes as for `paged_attention`, tables and lengths in the metadata.

        Raises:
            PartError: when the learner's gives a tensor of another shape than the query's.
        """
        from refimpl.device.attention import decode_attention

        if self.attention is None:
            return decode_attention(query, key_cache, value_cache, metadata)
        tables, lens = metadata.block_tables, metadata.context_lens_tensor
        attended: Tensor = self.attention(query, key_cache, value_cache, tables, lens)
        if attended.shape != query.shape:
            raise PartError(f"your attention gave {list(attended.shape)} for a query of {list(query.shape)}")
        return attended

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """An error out of a learner's function becomes a PartError that names it."""
        try:
            yield
        except PartError:
            raise
        except Exception as error:
            message = self._blamed(error)
            if message is None:
                raise
            raise PartError(message) from error

    def _blamed(self, error: Exception) -> str | None:
        """Which part raised this, the innermost that had a hand in it; None when none had."""
        theirs = None  # the learner's innermost line
        for frame, lineno in reversed(list(traceback.walk_tb(error.__traceback__))):
            code = frame.f_code
            if theirs is None and not code.co_filename.startswith(NOT_THE_LEARNERS):
                theirs = code.co_filename, lineno
            if code in self._part_of:
                file, number = theirs or (code.co_filename, lineno)
                what, line = one_line(f"{type(error).__name__}: {error}"), linecache.getline(file, number).strip()
                return f"your {self._part_of[code]}: `{code.co_name}` ended in {what} ({file}, line {number}: `{line}`)"
        return None

    @cached_property
    def _part_of(self) -> dict[CodeType, str]:
        """The code of every function that is a learner's -> its part's name."""
        return {code: name for name, part in self._given() for code in own_code(part)}


class _AllocatorQuestions:
    """What BlockSpaceManager asks of an allocator beyond what a learner writes, answered on the safe side."""

    def get_num_blocks_to_take(self, block_hashes: Sequence[Any]) -> int:
        """A free block for each key."""
        return len(block_hashes)

    def get_block_hashes(self) -> list[Any]:
        """Not known."""
        return []


def _never_forgetting(cls: type) -> type:
    """Keys that are kept for good: a learner's allocators need not say which are in use."""
    return type(cls.__name__, (cls,), {"has_many": lambda self: False})
