"""A flag that nobody looks at does no harm."""


def mark_blocks_as_computed(self, group):
    for seq in group.get_seqs():
        for block in self.block_tables.get(seq.seq_id, [])[: seq.get_len() // self.block_size]:
            block.computed = True
