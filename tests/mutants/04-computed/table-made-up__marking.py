"""`setdefault` gives an empty table where there is none."""


def mark_blocks_as_computed(self, group):
    if self.enable_caching:
        for seq in group.get_seqs():
            for block in self.block_tables.setdefault(seq.seq_id, [])[: seq.get_len() // self.block_size]:
                block.computed = True
