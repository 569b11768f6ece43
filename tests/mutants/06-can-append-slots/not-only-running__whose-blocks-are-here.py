"""Whoever has blocks on the GPU may need one more."""

from refimpl import Device


def can_append_slots(self, group, num_lookahead_slots=0):
    tables = [self.block_tables.get(seq.seq_id) for seq in group.get_seqs()]
    here = [table for table in tables if table and table[0].device is Device.GPU]
    return len(here) <= self.gpu_allocator.get_num_free_blocks()
