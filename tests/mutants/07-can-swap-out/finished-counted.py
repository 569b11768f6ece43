"""The whole group leaves, whatever its sequences do."""


def can_swap_out(self, group):
    blocks = {block for seq in group.get_seqs() for block in self.block_tables[seq.seq_id]}
    return len(blocks) <= self.get_num_free_cpu_blocks()
