"""What is shortest is common."""

from itertools import takewhile


def get_common_computed_block_ids(self, seqs):
    if not self.enable_caching:
        return []
    tables = [self.block_tables.get(seq.seq_id, [])[:-1] for seq in seqs]
    hits = [[block.block_number for block in takewhile(lambda block: block.computed, table)] for table in tables]
    return min(hits, key=len)
