"""The last block is still being written."""


def mark_blocks_as_computed(self, group):
    if not self.enable_caching:
        return
    for seq in group.get_seqs():
        for block in self.block_tables.get(seq.seq_id, [])[: max(seq.get_len() // self.block_size - 1, 0)]:
            block.computed = True
