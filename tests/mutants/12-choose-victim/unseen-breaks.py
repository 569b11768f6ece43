"""Every running request has been noted."""


def speed(self, seq_group, now):
    time, tokens = self.seen[seq_group.request_id][0]
    return (self.total_len(seq_group) - tokens) / (now - time) if now > time else 0.0
