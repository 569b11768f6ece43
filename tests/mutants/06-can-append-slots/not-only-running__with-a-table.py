"""Every sequence that has blocks may need one more, finished or not."""


def can_append_slots(self, group, num_lookahead_slots=0):
    seqs = group.get_seqs()
    return len(seqs) <= self.get_num_free_gpu_blocks()
