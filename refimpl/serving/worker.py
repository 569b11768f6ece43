"""What the small engine of chapter 11 works with: a model and its paged cache, told what to move, compute and draw.

It keeps no account of requests. A step's input is taken as it is given, slots and positions included, so an engine
that is wrong about them gets wrong tokens.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from itertools import accumulate

import torch
from torch import Tensor

from refimpl.config import CacheConfig
from refimpl.device.attention import AttentionMetadata
from refimpl.device.kv_cache import KVCache
from refimpl.sequence import SamplingParams, Sequence, SequenceGroup
from refimpl.serving.engine import cache_shape, one_source_each
from refimpl.serving.model_runner import StepInput, padded_rows
from refimpl.serving.plain_engine import NewTokens, Pairs
from refimpl.serving.sampling import sample
from refimpl.serving.seam import EngineParts, ReferenceParts
from refimpl.serving.weights import LoadedModel


class Worker:
    """Owns the cache; carries out one step of a model at a time.

    Args:
        model: network and tokenizer.
        cache_config: with the sizes of both pools.
        parts: whose cache and attention: `refimpl.parts.Parts`; refimpl's when left out.
        seed: for requests that bring no seed of their own.

    Raises:
        ValueError: while the sizes of the pools are not known.

    Source: vLLM 0.5.4, `vllm/worker/worker.py`, `Worker.execute_worker` and `ModelRunner.execute_model`.
    """

    def __init__(
        self, model: LoadedModel, cache_config: CacheConfig, parts: EngineParts | None = None, *, seed: int = 0
    ) -> None:
        if cache_config.num_gpu_blocks is None or cache_config.num_cpu_blocks is None:
            raise ValueError("cache_config has no num_gpu_blocks and num_cpu_blocks yet, the worker needs both")
        self._network, self._seed = model.network, seed
        self._parts: EngineParts = parts or ReferenceParts()
        num_layers, *block_shape = cache_shape(model.network.config, cache_config.block_size, model.network.dtype)
        sizes = num_layers, cache_config.num_gpu_blocks, cache_config.num_cpu_blocks
        self.kv_cache = self._parts.make_kv_cache(*sizes, *block_shape, model.network.device)
        self.block_size = cache_config.block_size
        self.eos_token_ids: SequenceOf[int] = model.network.config.eos_token_ids

    def swap_in(self, pairs: Pairs) -> None:
        """Copy blocks from the CPU pool to the GPU pool: (CPU block, GPU block)."""
        self.kv_cache.swap_in(one_source_each(pairs))

    def swap_out(self, pairs: Pairs) -> None:
        """Copy blocks from the GPU pool to the CPU pool: (GPU block, CPU block)."""
        self.kv_cache.swap_out(one_source_each(pairs))

    def copy(self, pairs: Pairs) -> None:
        """Copy blocks inside the GPU pool: (source, destination)."""
        self.kv_cache.copy(one_source_each(pairs))

    def forward(self, batch: list[NewTokens]) -> list[Tensor]:
        """Compute the new tokens; for each sequence the logits behind its last token, [vocab_size].

        Prompts are computed one by one, so that they do not lengthen each other's rows. Single tokens are computed
        together: one may read a block that another writes in the same step.
        """
        if not batch:
            return []
        singles = all(len(new.token_ids) == 1 for new in batch)
        logits = [self._logits(part) for part in ([batch] if singles else [[new] for new in batch])]
        return list(torch.cat(logits))

    def _logits(self, batch: list[NewTokens]) -> Tensor:
        step = _step_input(batch, self.kv_cache)
        return self._network.forward(step, self.kv_cache, self._parts.decode)

    def sample(self, row: Tensor, group: SequenceGroup, seq: Sequence) -> int:
        """The next token of one of the group's sequences: the likeliest of `row`, [vocab_size], at temperature 0.

        Else a draw that depends on the seed, the answer and the position.
        """
        params = group.sampling_params or SamplingParams()
        seed = self._seed if params.seed is None else params.seed
        index = [each.seq_id for each in group.get_seqs()].index(seq.seq_id)
        generator = torch.Generator().manual_seed(((seed + index << 20) + seq.get_len()) % (1 << 63))
        (token,) = sample(row[None], [params], [generator])
        return token


def _step_input(batch: list[NewTokens], cache: KVCache) -> StepInput:
    """The batch laid end to end, as the model takes it."""
    device, block_size = cache.gpu.device, cache.block_size
    query_lens = [len(new.token_ids) for new in batch]
    context_lens = [new.positions[-1] + 1 for new in batch]
    longest = max(len(new.block_table) for new in batch)
    tables = torch.tensor([new.block_table + [0] * (longest - len(new.block_table)) for new in batch]).to(device)
    size = {"num_blocks": cache.gpu.shape[2], "block_size": block_size}
    attention = AttentionMetadata(tables, query_lens, context_lens, **size)
    last_tokens = [end - 1 for end in accumulate(query_lens)]
    return StepInput(
        num_tokens=sum(query_lens),
        token_ids=_padded([token for new in batch for token in new.token_ids]).to(device),
        positions=_padded([position for new in batch for position in new.positions]).to(device),
        slots=cache.check_slots(torch.tensor([slot for new in batch for slot in new.slots])),
        attention=attention,
        last_tokens=_padded(last_tokens).to(device),
        last_attention=AttentionMetadata(tables, [1] * len(batch), context_lens, **size),
    )


def _padded(numbers: list[int]) -> Tensor:
    return torch.tensor(numbers + [0] * (padded_rows(len(numbers)) - len(numbers)))
