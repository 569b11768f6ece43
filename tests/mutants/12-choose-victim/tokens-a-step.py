"""A note is a step, and a step is a measure of time."""


def speed(self, seq_group, now):
    notes = self.seen.get(seq_group.request_id)
    if not notes:
        return 0.0
    return (self.total_len(seq_group) - notes[0][1]) / len(notes)
