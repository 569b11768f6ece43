"""A sequence has a block table."""

from itertools import takewhile


def get_common_computed_block_ids(self, seqs):
    if not self.enable_caching:
        return []
    tables = [self.block_tables[seq.seq_id][:-1] for seq in seqs]
    hits = takewhile(lambda blocks: len(set(blocks)) == 1 and blocks[0].computed, zip(*tables, strict=False))
    return [blocks[0].block_number for blocks in hits]
