"""What the cache has need not be found again."""


def can_allocate(self, group):
    seq = self._waiting_seqs(group)[0]
    return self._alloc_status(self.gpu_allocator.get_num_blocks_to_take(self._block_hashes(seq)))
