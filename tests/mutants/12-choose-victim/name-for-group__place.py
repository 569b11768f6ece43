"""The place in the queue says which group it is."""


def choose(self, queue, now):
    ranks = [(self.total_len(seq_group), -self.speed(seq_group, now)) for seq_group in queue]
    return ranks.index(max(ranks))
