"""Recent is the last step."""


def speed(self, seq_group, now):
    notes = self.seen.get(seq_group.request_id)
    if not notes or now <= notes[-1][0]:
        return 0.0
    time, tokens = notes[-1]
    return (self.total_len(seq_group) - tokens) / (now - time)
