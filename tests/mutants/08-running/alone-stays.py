"""Who is alone waits for better times."""


def _make_room(self, seq_group, queue, recomputed, outputs, now):
    while not self.block_manager.can_append_slots(seq_group):
        if not queue:
            self.running.append(seq_group)
            return False
        self._preempt(self._take_victim(queue, now), recomputed, outputs)
    return True
