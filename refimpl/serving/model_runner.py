"""What the model has to compute in one step, worked out from sequences and their block tables.

A sequence's new tokens are those behind `num_computed_tokens`: its whole prompt at first, one token a step afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import torch
from torch import Tensor

from refimpl.device.kv_cache import slot_mapping
from refimpl.sequence import Sequence


@dataclass(frozen=True, slots=True)
class StepInput:
    """New tokens of several sequences, laid end to end.

    token_ids, positions, slot_mapping: [num_tokens], int64. query_lens: new tokens of each sequence.
    block_tables: [num_seqs, max_blocks], int64. context_lens: [num_seqs], int64, the new tokens included.
    """

    token_ids: Tensor
    positions: Tensor
    slot_mapping: Tensor
    query_lens: list[int]
    block_tables: Tensor
    context_lens: Tensor


def prepare_step(
    seqs: SequenceOf[Sequence], block_tables: SequenceOf[list[int]], block_size: int, device: torch.device
) -> StepInput:
    """The input that computes every new token of `seqs`.

    Args:
        seqs: at least one sequence, each with at least one new token.
        block_tables: block numbers of each sequence, with room for all its tokens.
        block_size: tokens a block.
        device: where the model runs.

    Raises:
        ValueError: for a table that is too short.

    >>> seq = Sequence(0, [7, 8, 9], block_size=2)
    >>> prepare_step([seq], [[5, 1]], 2, torch.device("cpu")).slot_mapping.tolist()
    [10, 11, 2]

    Source: vLLM 0.5.4, `vllm/worker/model_runner.py`, `ModelInputForGPUBuilder`.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[Tensor] = []
    for seq, block_table in zip(seqs, block_tables, strict=True):
        new = range(seq.num_computed_tokens, seq.get_len())
        token_ids += seq.get_token_ids()[new.start :]
        positions += new
        slots.append(slot_mapping(block_table, new, block_size))
    longest = max(len(block_table) for block_table in block_tables)
    padded = [block_table + [0] * (longest - len(block_table)) for block_table in block_tables]
    return StepInput(
        token_ids=torch.tensor(token_ids, device=device),
        positions=torch.tensor(positions, device=device),
        slot_mapping=torch.cat(slots).to(device),
        query_lens=[seq.get_len() - seq.num_computed_tokens for seq in seqs],
        block_tables=torch.tensor(padded, device=device),
        context_lens=torch.tensor([seq.get_len() for seq in seqs], device=device),
    )
