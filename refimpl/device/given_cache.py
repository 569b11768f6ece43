"""A cache whose blocks are written, copied and swapped by functions that somebody hands over: a learner's own.

Pools, layout and the checking of block numbers stay `KVCache`'s; what is not handed over is done as it does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from refimpl.device.kv_cache import CheckedSlots, KVCache, Pairs


class GivenKVCache(KVCache):
    """A `KVCache` with other hands.

    Args:
        shape: the arguments of `KVCache`, in their order.
        write: (key, value, key_cache, value_cache, slot_mapping), for one layer; as vLLM's `reshape_and_cache`.
        copy: (kv_cache, pairs), kv_cache being [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim].
        swap: (source, destination, pairs) from one such pool to the other.

    Source: vLLM 0.5.4, `vllm/_custom_ops.py`: `reshape_and_cache`, `copy_blocks`, `swap_blocks`.
    """

    def __init__(
        self,
        *shape: Any,
        write: Callable[..., Any] | None = None,
        copy: Callable[..., Any] | None = None,
        swap: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(*shape)
        self._given_write, self._given_copy, self._given_swap = write, copy, swap

    def write(self, layer: int, key: Tensor, value: Tensor, slot_mapping: Tensor | CheckedSlots) -> None:
        """As `KVCache.write`."""
        if self._given_write is None:
            super().write(layer, key, value, slot_mapping)
        else:
            slots = slot_mapping.slots if isinstance(slot_mapping, CheckedSlots) else slot_mapping
            self._given_write(key, value, self.key_cache(layer), self.value_cache(layer), slots.to(key.device))

    def copy(self, pairs: Pairs) -> None:
        """As `KVCache.copy`."""
        if self._given_copy is None:
            super().copy(pairs)
        else:
            self._check_pairs(pairs, ("GPU", "GPU"))
            self._given_copy(self.gpu, pairs)

    def swap_out(self, pairs: Pairs) -> None:
        """As `KVCache.swap_out`."""
        if self._given_swap is None:
            super().swap_out(pairs)
        else:
            self._check_pairs(pairs, ("GPU", "CPU"))
            self._given_swap(self.gpu, self.cpu, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        """As `KVCache.swap_in`."""
        if self._given_swap is None:
            super().swap_in(pairs)
        else:
            self._check_pairs(pairs, ("CPU", "GPU"))
            self._given_swap(self.cpu, self.gpu, pairs)
