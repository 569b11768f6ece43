"""A group is as long as its longest sequence."""


def total_len(self, seq_group):
    return max(seq.get_len() for seq in seq_group.get_unfinished_seqs())
