"""When all the others are gone there is room."""


def _make_room(self, seq_group, queue, recomputed, outputs, now):
    while queue and not self.block_manager.can_append_slots(seq_group):
        self._preempt(self._take_victim(queue, now), recomputed, outputs)
    return True
