"""To ask is to come in, where there is room."""

from refimpl import AllocStatus


def can_allocate(self, group):
    status = self._alloc_status(self._waiting_seqs(group)[0].n_blocks)
    if status is AllocStatus.OK:
        self.block_tables[self._waiting_seqs(group)[0].seq_id] = [
            self.gpu_allocator.allocate() for _ in range(self._waiting_seqs(group)[0].n_blocks)
        ]
    return status
