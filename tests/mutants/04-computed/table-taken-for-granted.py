"""A sequence has a block table."""


def mark_blocks_as_computed(self, group):
    if not self.enable_caching:
        return
    for seq in group.get_seqs():
        for block in self.block_tables[seq.seq_id][: seq.get_len() // self.block_size]:
            block.computed = True
