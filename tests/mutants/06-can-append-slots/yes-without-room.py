"""One free block is enough for a group."""


def can_append_slots(self, group, num_lookahead_slots=0):
    return self.gpu_allocator.get_num_free_blocks() > 0
