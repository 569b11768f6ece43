"""Who cannot be saved is lost, and should say so."""

from refimpl import SequenceStatus


def swap_out(self, group):
    seqs = group.get_seqs(SequenceStatus.RUNNING)
    try:
        return self._swap(seqs, self.gpu_allocator, self.cpu_allocator)
    except ValueError:
        for seq in seqs:
            seq.status = SequenceStatus.FINISHED_ABORTED
        raise
