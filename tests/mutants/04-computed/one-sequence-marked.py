"""The sequences of a group share their prompt, so one is enough."""


def mark_blocks_as_computed(self, group):
    if not self.enable_caching:
        return
    seq = group.get_seqs()[0]
    for block in self.block_tables.get(seq.seq_id, [])[: seq.get_len() // self.block_size]:
        block.computed = True
