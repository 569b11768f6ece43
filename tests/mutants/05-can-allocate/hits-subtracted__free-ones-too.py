"""What is in the cache, held or free, costs nothing."""


def can_allocate(self, group):
    seq = self._waiting_seqs(group)[0]
    if not self.enable_caching:
        return self._alloc_status(seq.n_blocks)
    known = sum(self.gpu_allocator.contains_block(block_hash) for block_hash in self._block_hashes(seq))
    return self._alloc_status(seq.n_blocks - known)
