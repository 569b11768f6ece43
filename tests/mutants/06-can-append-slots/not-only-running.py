"""Every sequence of the group may need a block."""


def can_append_slots(self, group, num_lookahead_slots=0):
    return group.num_seqs() <= self.gpu_allocator.get_num_free_blocks()
