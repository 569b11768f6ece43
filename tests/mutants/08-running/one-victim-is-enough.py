"""One victim makes room for one request."""


def _make_room(self, seq_group, queue, recomputed, outputs, now):
    if not self.block_manager.can_append_slots(seq_group):
        victim = self._take_victim(queue, now) if queue else seq_group
        self._preempt(victim, recomputed, outputs)
        if victim is seq_group:
            return False
    return True
