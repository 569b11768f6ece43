"""A request is as long as its prompt."""


def total_len(self, seq_group):
    return sum(seq.get_prompt_len() for seq in seq_group.get_unfinished_seqs())
