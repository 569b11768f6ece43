"""What was noted is all that is known."""


def speed(self, seq_group, now):
    notes = self.seen.get(seq_group.request_id, [])
    if len(notes) < 2:
        return 0.0
    (first, before), (last, after) = notes[0], notes[-1]
    return (after - before) / (last - first)
