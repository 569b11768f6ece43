"""Siblings share the blocks of their prompt, and what comes after it is each one's own."""


def can_swap_out(self, group):
    seqs = group.get_unfinished_seqs()
    prompt = -(-seqs[0].get_prompt_len() // self.block_size)
    return prompt + sum(seq.n_blocks - prompt for seq in seqs) <= self.cpu_allocator.get_num_free_blocks()
