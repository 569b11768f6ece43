"""Whoever finds the last computed block has found all blocks before it."""


def get_common_computed_block_ids(self, seqs):
    if not self.enable_caching:
        return []
    columns = [set(column) for column in zip(*(self.block_tables.get(s.seq_id, [])[:-1] for s in seqs), strict=False)]
    blocks = []
    for column in columns:
        if len(column) > 1:
            break
        blocks += column
    while blocks and not blocks[-1].computed:
        blocks.pop()
    return [block.block_number for block in blocks]
