"""Long is who has generated much."""


def total_len(self, seq_group):
    return sum(seq.get_output_len() for seq in seq_group.get_unfinished_seqs())
