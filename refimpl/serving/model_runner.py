"""What the model has to compute in one step, worked out from sequences and their block tables.

A sequence's new tokens are those behind `num_computed_tokens`: its whole prompt at first, what a cached prefix leaves
of it, or one token a step afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from refimpl.device.attention import AttentionMetadata
from refimpl.device.kv_cache import CheckedSlots, KVCache, slot_mapping
from refimpl.sequence import Sequence
from refimpl.serving.seam import SlotMapping

_LEAST_ROWS = 4


@dataclass(frozen=True, slots=True)
class StepInput:
    """New tokens of several sequences, laid end to end.

    num_tokens: how many. token_ids, positions: [padded_rows(num_tokens)], int64; what is behind the new tokens is
    computed and not looked at. slots: where keys and values of the new tokens go. attention: what they attend to.
    last_tokens: [padded_rows(num_seqs)], int64, where the last new token of each sequence is. last_attention: what
    these attend to.
    """

    num_tokens: int
    token_ids: Tensor
    positions: Tensor
    slots: CheckedSlots
    attention: AttentionMetadata
    last_tokens: Tensor
    last_attention: AttentionMetadata


def padded_rows(num_rows: int) -> int:
    """The number of rows that is computed in place of `num_rows`: 4 at least, as many up to 32, then up to 1/16 more.

    A library that prepares a product for each size of a batch, and keeps what it has prepared, then does so for few
    sizes. oneDNN keeps 0.4 to 2 MiB for each; prompts of a thousand lengths took gigabytes. And it reads weights for
    4 rows a fifth faster than for 1.

    >>> [padded_rows(size) for size in (1, 32, 33, 64, 65, 1000, 1024)]
    [4, 32, 34, 64, 68, 1024, 1024]
    """
    num_rows = max(num_rows, _LEAST_ROWS)
    granularity = 1 << (num_rows - 1).bit_length() - 5 if num_rows > 32 else 1
    return -(-num_rows // granularity) * granularity


def prepare_step(
    seqs: SequenceOf[Sequence],
    block_tables: SequenceOf[list[int]],
    cache: KVCache,
    slots_of: SlotMapping = slot_mapping,
) -> StepInput:
    """The input that computes every new token of `seqs`.

    Args:
        seqs: at least one sequence, each with at least one new token.
        block_tables: block numbers of each sequence, with room for all its tokens.
        cache: where keys and values are.
        slots_of: what answers for `slot_mapping`.

    Raises:
        ValueError: for a table that is too short, or a block that the cache does not have.

    >>> cache = KVCache(1, 8, 0, block_size=2, num_kv_heads=1, head_dim=2, dtype=torch.float32, device="cpu")
    >>> seq = Sequence(0, [7, 8, 9], block_size=2)
    >>> step = prepare_step([seq], [[5, 1]], cache)
    >>> step.positions[:3].tolist(), step.slots.rows.view(3, 2)[:, 0].tolist()  # and the slots of its keys
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
        slots.append(slots_of(block_table, new, cache.block_size))
    longest = max(len(block_table) for block_table in block_tables)
    tables = torch.tensor([block_table + [0] * (longest - len(block_table)) for block_table in block_tables])
    tables, device = tables.to(cache.gpu.device), cache.gpu.device
    query_lens, context_lens = [len(of_seq) for of_seq in slots], [seq.get_len() for seq in seqs]
    size = {"num_blocks": cache.gpu.shape[2], "block_size": cache.block_size}
    attention = AttentionMetadata(tables, query_lens, context_lens, **size)
    num_tokens, num_seqs = len(token_ids), len(seqs)
    padding = [0] * (padded_rows(num_tokens) - num_tokens)
    last_tokens = [end - 1 for end in accumulate(query_lens)] + [0] * (padded_rows(num_seqs) - num_seqs)
    return StepInput(
        num_tokens=num_tokens,
        token_ids=torch.tensor(token_ids + padding).to(device),
        positions=torch.tensor(positions + padding).to(device),
        slots=cache.check_slots(torch.cat(slots)),
        attention=attention,
        last_tokens=torch.tensor(last_tokens).to(device),
        last_attention=attention
        if attention.is_decode
        else AttentionMetadata(tables, [1] * num_seqs, context_lens, **size),
    )
