"""Speed is tokens by time."""


def speed(self, seq_group, now):
    notes = self.seen.get(seq_group.request_id)
    if not notes or now <= notes[0][0]:
        return 0.0
    return self.total_len(seq_group) / (now - notes[0][0])
