"""The surest way to find out whether there is room is to take it, and to give it back."""

from refimpl import SequenceStatus


def can_append_slots(self, group, num_lookahead_slots=0):
    taken = []
    try:
        for _ in group.get_seqs(SequenceStatus.RUNNING):
            taken.append(self.gpu_allocator.allocate())
    except ValueError:
        return False
    finally:
        for block in taken:
            self.gpu_allocator.free(block)
    return True
