"""Time has passed since the first note."""


def speed(self, seq_group, now):
    notes = self.seen.get(seq_group.request_id)
    if not notes:
        return 0.0
    time, tokens = notes[0]
    return (self.total_len(seq_group) - tokens) / (now - time)
