"""What the model has to compute in one step, worked out from sequences and their block tables.

A sequence's new tokens are those behind `num_computed_tokens`: its whole prompt at first, what a cached prefix leaves
of it, or one token a step afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import torch
from torch import Tensor

from refimpl.device.attention import AttentionMetadata
from refimpl.device.kv_cache import CheckedSlots, KVCache, slot_mapping
from refimpl.sequence import Sequence


@dataclass(frozen=True, slots=True)
class StepInput:
    """New tokens of several sequences, laid end to end.

    num_tokens: how many. token_ids, positions: [padded_rows(num_tokens)], int64; what is behind the new tokens is
    computed and not looked at. slots: where keys and values of the new tokens go. attention: what they attend to.
    """

    num_tokens: int
    token_ids: Tensor
    positions: Tensor
    slots: CheckedSlots
    attention: AttentionMetadata


def padded_rows(num_rows: int) -> int:
    """The number of rows that is computed in place of `num_rows`: the same up to 32, then up to 1 in 16 more.

    A library that prepares a product for each size of a batch, and keeps what it has prepared, then does so for few
    sizes. oneDNN keeps 0.4 to 2 MiB for each; prompts of a thousand lengths took gigabytes.

    >>> [padded_rows(size) for size in (1, 32, 33, 64, 65, 1000, 1024)]
    [1, 32, 34, 64, 68, 1024, 1024]
    """
    granularity = 1 << (num_rows - 1).bit_length() - 5 if num_rows > 32 else 1
    return -(-num_rows // granularity) * granularity


def prepare_step(seqs: SequenceOf[Sequence], block_tables: SequenceOf[list[int]], cache: KVCache) -> StepInput:
    """The input that computes every new token of `seqs`.

    Args:
        seqs: at least one sequence, each with at least one new token.
        block_tables: block numbers of each sequence, with room for all its tokens.
        cache: where keys and values are.

    Raises:
        ValueError: for a table that is too short, or a block that the cache does not have.

    >>> cache = KVCache(1, 8, 0, block_size=2, num_kv_heads=1, head_dim=2, dtype=torch.float32, device="cpu")
    >>> seq = Sequence(0, [7, 8, 9], block_size=2)
    >>> step = prepare_step([seq], [[5, 1]], cache)
    >>> step.positions.tolist(), step.slots.rows.view(3, 2)[:, 0].tolist()  # and the slots of its keys
    ([0, 1, 2], [10, 11, 2])

    Source: vLLM 0.5.4, `vllm/worker/model_runner.py`, `ModelInputForGPUBuilder`.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[Tensor] = []
    for seq, block_table in zip(seqs, block_tables, strict=True):
        new = range(seq.num_computed_tokens, seq.get_len())
        token_ids += seq.get_token_ids(new.start)
        positions += new
        slots.append(slot_mapping(block_table, new, cache.block_size))
    longest = max(len(block_table) for block_table in block_tables)
    tables = torch.tensor([block_table + [0] * (longest - len(block_table)) for block_table in block_tables])
    num_blocks, block_size, device = cache.gpu.shape[2], cache.block_size, cache.gpu.device
    context_lens = [seq.get_len() for seq in seqs]
    num_tokens = len(token_ids)
    padding = [0] * (padded_rows(num_tokens) - num_tokens)
    attention = AttentionMetadata(
        tables.to(device), [len(of_seq) for of_seq in slots], context_lens, num_blocks=num_blocks, block_size=block_size
    )
    return StepInput(
        num_tokens=num_tokens,
        token_ids=torch.tensor(token_ids + padding).to(device),
        positions=torch.tensor(positions + padding).to(device),
        slots=cache.check_slots(torch.cat(slots)),
        attention=attention,
    )
