"""Answers to chapters 05 to 07 for which no wrong thought has a name: what is wrong is told by what it does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from learners import ROOT

from refimpl import AllocStatus, BlockTable, Device, PhysicalTokenBlock, Sequence, SequenceGroup, SequenceStatus, proof
from refimpl.allocator import BlockAllocator
from refimpl.checks import CheckResult, steps
from refimpl.checks.engine import examine


def result_of(exercise_id: str, **answers: Callable[..., Any]) -> CheckResult:
    """What the check says of the solution with these methods in place of its own."""
    step = steps()[exercise_id]
    return examine(step, proof.mutated(step, proof.Chapter(ROOT, exercise_id[:2]).solution(), answers))


def still_a_stub(self: Any, *_: Any) -> Any:
    raise NotImplementedError()


def whole_question(devices: tuple[Device, ...]) -> Callable[..., AllocStatus]:
    """`can_allocate` in one piece; used are the blocks on these devices."""

    def can_allocate(self: Any, group: SequenceGroup) -> AllocStatus:
        required = self._waiting_seqs(group)[0].n_blocks + self.watermark_blocks
        used = {block for table in self.block_tables.values() for block in table if block.device in devices}
        if required > self.num_total_gpu_blocks:
            return AllocStatus.NEVER
        return AllocStatus.OK if required + len(used) <= self.num_total_gpu_blocks else AllocStatus.LATER

    return can_allocate


def free_in_one_piece(self: Any, seq: Sequence) -> None:
    for block in self.block_tables.pop(seq.seq_id, []):
        (self.gpu_allocator if block.device is Device.GPU else self.cpu_allocator).free(block)


def free_to_the_gpu(self: Any, block_table: BlockTable) -> None:
    for block in block_table:
        self.gpu_allocator.free(block)


def copy_unless_found(self: Any, seq: Sequence, block_table: BlockTable) -> tuple[int, int] | None:
    new_block = self._allocate_last_block(seq)
    shared_block, block_table[-1] = block_table[-1], new_block
    self.gpu_allocator.free(shared_block)
    return (shared_block.block_number, new_block.block_number) if new_block.ref_count == 1 else None


def taken_and_given_back(
    self: Any, seqs: list[Sequence], source: BlockAllocator, destination: BlockAllocator
) -> list[tuple[int, int]]:
    blocks = list(dict.fromkeys(block for seq in seqs for block in self.block_tables[seq.seq_id]))
    moved: dict[PhysicalTokenBlock, PhysicalTokenBlock] = {}
    try:
        for block in blocks:
            moved[block] = destination.allocate(block.block_hash, block.num_hashed_tokens)
    except ValueError:
        for block in moved.values():
            destination.free(block)
        raise
    for block in moved.values():
        block.ref_count -= 1
    for seq in seqs:
        block_table = self.block_tables[seq.seq_id]
        self.block_tables[seq.seq_id] = [moved[block] for block in block_table]
        for block in block_table:
            moved[block].ref_count += 1
            source.free(block)
    return [(block.block_number, target.block_number) for block, target in moved.items()]


def test_free_blocks_may_be_counted_from_the_tables_on_the_gpu() -> None:
    assert result_of("05-can-allocate", can_allocate=whole_question((Device.GPU,))).passed


def test_blocks_on_the_cpu_take_no_room_on_the_gpu() -> None:
    result = result_of("05-can-allocate", can_allocate=whole_question(tuple(Device)))
    assert result.outcome == "wrong"
    assert "LATER" in result.message


def test_a_prompt_is_counted_in_blocks_of_16_as_well() -> None:
    def can_allocate(self: Any, group: SequenceGroup) -> Any:
        num_tokens = self._waiting_seqs(group)[0].get_len()
        return self._alloc_status(int(num_tokens / self.block_size + 0.9))  # right for blocks of up to 10 tokens

    result = result_of("05-can-allocate", can_allocate=can_allocate)
    assert result.outcome == "wrong"
    assert "num_tokens=785" in result.message


def test_half_of_can_allocate_earns_not_all_points() -> None:
    answers = {"can_allocate": whole_question((Device.GPU,)), "_alloc_status": still_a_stub}
    result = result_of("05-can-allocate", **answers)
    assert result.outcome == "raised"
    assert "can_swap_in" in result.message


def test_half_of_free_earns_not_all_points() -> None:
    result = result_of("06-free", free=free_in_one_piece, _free_block_table=still_a_stub)
    assert result.outcome == "raised"
    assert "reset" in result.message


def test_reset_gives_blocks_back_where_they_lie() -> None:
    result = result_of("06-free", free=free_in_one_piece, _free_block_table=free_to_the_gpu)
    assert result.outcome == "wrong"
    assert "reset" in result.message


def test_a_block_that_was_found_by_its_content_is_copied_to_as_well() -> None:
    result = result_of("06-copy-on-write", _copy_on_write=copy_unless_found)
    assert result.outcome == "wrong"
    assert "[None]" in result.message


def test_a_refused_swap_that_takes_blocks_and_gives_them_back_has_emptied_the_cache() -> None:
    result = result_of("07-swap-out", _swap=taken_and_given_back)
    assert result.misconception == "half-done"
    assert "cache" in result.trace[-1]


def test_a_question_about_a_swap_changes_no_status() -> None:
    def can_swap_out(self: Any, group: SequenceGroup) -> bool:
        fits = len(self._distinct_blocks(group)) <= self.cpu_allocator.get_num_free_blocks()
        for seq in group.get_seqs(SequenceStatus.RUNNING) if fits else []:
            seq.status = SequenceStatus.SWAPPED
        return fits

    result = result_of("07-can-swap-out", can_swap_out=can_swap_out)
    assert result.outcome == "wrong"
    assert "a.seqs[0].status" in result.message


@pytest.mark.parametrize("exercise_id", ["07-can-swap-out", "07-can-swap-in"])
def test_a_key_that_is_never_there_tells_nothing_of_ended_sequences(exercise_id: str) -> None:
    def question(self: Any, group: SequenceGroup) -> Any:
        return self.block_tables[group.request_id]

    result = result_of(exercise_id, **{steps()[exercise_id].writes[0]: question})
    assert result.outcome == "raised"


def test_an_error_of_every_call_tells_nothing_of_room() -> None:
    def allocate(self: Any, group: SequenceGroup) -> None:
        (_, _, _, _) = self._waiting_seqs(group)

    assert result_of("05-allocate", allocate=allocate).outcome == "raised"
