"""Computed is computed, caching or not."""

from itertools import takewhile


def mark_blocks_as_computed(self, group):
    for seq in group.get_seqs():
        for block in self.block_tables.get(seq.seq_id, [])[: seq.get_len() // self.block_size]:
            block.computed = True


def get_common_computed_block_ids(self, seqs):
    tables = [self.block_tables.get(seq.seq_id, [])[:-1] for seq in seqs]
    hits = takewhile(lambda blocks: len(set(blocks)) == 1 and blocks[0].computed, zip(*tables, strict=False))
    return [blocks[0].block_number for blocks in hits]
