"""A request that is asked about gets its place in the dict, and its blocks later."""

from refimpl import AllocStatus


def can_allocate(self, group):
    first = self._waiting_seqs(group)[0]
    status = self._alloc_status(first.n_blocks)
    if status is AllocStatus.OK:
        self.block_tables[first.seq_id] = []
    return status
