"""Where a sequence has no block table there is nothing more to do."""


def mark_blocks_as_computed(self, group):
    if not self.enable_caching:
        return
    for seq in group.get_seqs():
        if seq.seq_id not in self.block_tables:
            return
        for block in self.block_tables[seq.seq_id][: seq.get_len() // self.block_size]:
            block.computed = True
