"""A group is all of its sequences."""


def total_len(self, seq_group):
    return sum(seq.get_len() for seq in seq_group.get_seqs())
