"""The surest way to find out whether there is room is to take it, and to give it back."""

from refimpl import AllocStatus


def can_allocate(self, group):
    status = self._alloc_status(self._waiting_seqs(group)[0].n_blocks)
    if status is AllocStatus.NEVER:
        return status
    taken = []
    try:
        for _ in range(self._waiting_seqs(group)[0].n_blocks):
            taken.append(self.gpu_allocator.allocate())
    except ValueError:
        pass
    for block in taken:
        self.gpu_allocator.free(block)
    return status
