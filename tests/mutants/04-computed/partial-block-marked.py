"""All blocks of a computed sequence are computed."""


def mark_blocks_as_computed(self, group):
    if not self.enable_caching:
        return
    for seq in group.get_seqs():
        for block in self.block_tables.get(seq.seq_id, []):
            block.computed = True
