"""The sequences of a group have the same prefix."""

from itertools import takewhile


def get_common_computed_block_ids(self, seqs):
    if not self.enable_caching:
        return []
    table = self.block_tables.get(seqs[0].seq_id, [])[:-1]
    return [block.block_number for block in takewhile(lambda block: block.computed, table)]
