"""The reference package of the course: vLLM 0.5.4's KV-cache block manager, and what it takes to serve a model with it.

Public names are loaded when they are first asked for, so that `import refimpl` costs next to nothing and torch is
loaded by those who need it only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refimpl.allocator import CachedBlockAllocator as CachedBlockAllocator
    from refimpl.allocator import UncachedBlockAllocator as UncachedBlockAllocator
    from refimpl.block import BlockTable as BlockTable
    from refimpl.block import Device as Device
    from refimpl.block import PhysicalTokenBlock as PhysicalTokenBlock
    from refimpl.block import distinct_blocks as distinct_blocks
    from refimpl.block import internal_fragmentation as internal_fragmentation
    from refimpl.block import kv_bytes_per_block as kv_bytes_per_block
    from refimpl.block import locate as locate
    from refimpl.block import num_required_blocks as num_required_blocks
    from refimpl.block import share_block_table as share_block_table
    from refimpl.block import slots as slots
    from refimpl.block_manager import AllocStatus as AllocStatus
    from refimpl.block_manager import BlockSpaceManager as BlockSpaceManager
    from refimpl.block_manager import num_watermark_blocks as num_watermark_blocks
    from refimpl.checks import CheckResult as CheckResult
    from refimpl.checks import check as check
    from refimpl.config import CacheConfig as CacheConfig
    from refimpl.config import SchedulerConfig as SchedulerConfig
    from refimpl.device.attention import paged_attention as paged_attention
    from refimpl.device.kv_cache import KVCache as KVCache
    from refimpl.device.kv_cache import slot_mapping as slot_mapping
    from refimpl.evictor import LRUEvictor as LRUEvictor
    from refimpl.evictor import PlainEvictor as PlainEvictor
    from refimpl.prefix_hash import BlockHash as BlockHash
    from refimpl.prefix_hash import PrefixKeys as PrefixKeys
    from refimpl.scheduler import PreemptionMode as PreemptionMode
    from refimpl.scheduler import ScheduledSequenceGroup as ScheduledSequenceGroup
    from refimpl.scheduler import Scheduler as Scheduler
    from refimpl.scheduler import SchedulerOutputs as SchedulerOutputs
    from refimpl.scheduler import SchedulingBudget as SchedulingBudget
    from refimpl.scheduler import SequenceGroupMetadata as SequenceGroupMetadata
    from refimpl.sequence import SamplingParams as SamplingParams
    from refimpl.sequence import Sequence as Sequence
    from refimpl.sequence import SequenceGroup as SequenceGroup
    from refimpl.sequence import SequenceStatus as SequenceStatus
    from refimpl.serving.engine import LLMEngine as LLMEngine
    from refimpl.serving.llm import LLM as LLM

_MODULE_OF = {  # public name -> the module that defines it
    "AllocStatus": "block_manager",
    "BlockHash": "prefix_hash",
    "BlockSpaceManager": "block_manager",
    "BlockTable": "block",
    "CacheConfig": "config",
    "CachedBlockAllocator": "allocator",
    "CheckResult": "checks",
    "Device": "block",
    "KVCache": "device.kv_cache",
    "LLM": "serving.llm",
    "LLMEngine": "serving.engine",
    "LRUEvictor": "evictor",
    "PhysicalTokenBlock": "block",
    "PlainEvictor": "evictor",
    "PreemptionMode": "scheduler",
    "PrefixKeys": "prefix_hash",
    "SamplingParams": "sequence",
    "ScheduledSequenceGroup": "scheduler",
    "Scheduler": "scheduler",
    "SchedulerConfig": "config",
    "SchedulerOutputs": "scheduler",
    "SchedulingBudget": "scheduler",
    "Sequence": "sequence",
    "SequenceGroup": "sequence",
    "SequenceGroupMetadata": "scheduler",
    "SequenceStatus": "sequence",
    "UncachedBlockAllocator": "allocator",
    "check": "checks",
    "distinct_blocks": "block",
    "internal_fragmentation": "block",
    "kv_bytes_per_block": "block",
    "locate": "block",
    "num_required_blocks": "block",
    "num_watermark_blocks": "block_manager",
    "paged_attention": "device.attention",
    "share_block_table": "block",
    "slot_mapping": "device.kv_cache",
    "slots": "block",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'refimpl' has no attribute {name!r}")
    return getattr(importlib.import_module(f"refimpl.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
