"""Whatever has a table has to go."""


def can_swap_out(self, group):
    blocks = {block for seq in group.seqs for block in self.block_tables.get(seq.seq_id, [])}
    return len(blocks) <= self.get_num_free_cpu_blocks()
