"""Who finds no block skips a step."""


def _make_room(self, seq_group, queue, recomputed, outputs, now):
    if self.block_manager.can_append_slots(seq_group):
        return True
    self.running.append(seq_group)
    return False
