"""The newest token is not computed yet."""


def mark_blocks_as_computed(self, group):
    if not self.enable_caching:
        return
    for seq in group.get_seqs():
        table = self.block_tables.get(seq.seq_id, [])
        for block in table[:-1][: (seq.get_len() - 1) // self.block_size]:
            block.computed = True
