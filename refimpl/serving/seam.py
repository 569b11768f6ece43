"""What an engine is made of: the reference's parts, each of which a learner's own can take the place of.

The engine asks for its scheduler, its cache and its attention here and nowhere else. `refimpl.parts.Parts` answers with
the learner's; this answers with the reference's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from torch import Tensor

from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.device.attention import AttentionMetadata, decode_attention
from refimpl.device.kv_cache import KVCache, slot_mapping
from refimpl.scheduler import Scheduler

SlotMapping = Callable[[list[int], Sequence[int], int], Tensor]
DecodeAttention = Callable[[Tensor, Tensor, Tensor, AttentionMetadata], Tensor]


class EngineParts(Protocol):
    """What an engine asks for."""

    def make_scheduler(
        self, scheduler_config: SchedulerConfig, cache_config: CacheConfig, *, log_decisions: bool = False
    ) -> Scheduler:
        """The scheduler, with its block manager."""

    def make_kv_cache(self, *shape: Any) -> KVCache:
        """The pools; `shape` is the arguments of `KVCache`."""

    def slots(self, block_table: list[int], positions: Sequence[int], block_size: int) -> Tensor:
        """Where the tokens at these positions keep their keys and values: `slot_mapping`."""

    def decode(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Attention of one new token a sequence: `paged_attention`."""

    def at_work(self) -> AbstractContextManager[object]:
        """What an error inside `with` is to be told as."""


class ReferenceParts:
    """All parts the reference's; an error is told as what it is."""

    def make_scheduler(
        self, scheduler_config: SchedulerConfig, cache_config: CacheConfig, *, log_decisions: bool = False
    ) -> Scheduler:
        """A Scheduler."""
        return Scheduler(scheduler_config, cache_config, log_decisions=log_decisions)

    def make_kv_cache(self, *shape: Any) -> KVCache:
        """A KVCache."""
        return KVCache(*shape)

    def slots(self, block_table: list[int], positions: Sequence[int], block_size: int) -> Tensor:
        """`slot_mapping`."""
        return slot_mapping(block_table, positions, block_size)

    def decode(self, query: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: AttentionMetadata) -> Tensor:
        """`decode_attention`."""
        return decode_attention(query, key_cache, value_cache, metadata)

    def at_work(self) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()
