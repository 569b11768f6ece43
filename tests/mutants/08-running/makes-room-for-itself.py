"""Who cannot go on stops."""


def _make_room(self, seq_group, queue, recomputed, outputs, now):
    while not self.block_manager.can_append_slots(seq_group):
        victim = seq_group
        self._preempt(victim, recomputed, outputs)
        if victim is seq_group:
            return False
    return True
