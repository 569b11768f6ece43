"""Whoever has not finished and does not run, waits."""

from refimpl import SequenceStatus


def can_allocate(self, group):
    waiting = [seq for seq in group.get_unfinished_seqs() if seq.status is not SequenceStatus.RUNNING]
    if not waiting:
        raise ValueError(f"nobody waits in {group.request_id}")
    return self._alloc_status(waiting[0].n_blocks)
