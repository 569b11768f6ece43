"""Only who runs computes anything."""

from refimpl import SequenceStatus


def mark_blocks_as_computed(self, group):
    if self.enable_caching:
        for seq in group.get_seqs(SequenceStatus.RUNNING):
            for block in self.block_tables.get(seq.seq_id, [])[: seq.get_len() // self.block_size]:
                block.computed = True
