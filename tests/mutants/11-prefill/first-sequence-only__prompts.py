"""A prompt is one sequence."""

from refimpl.serving.plain_engine import NewTokens


def prepare(self, data):
    batch = []
    seqs = list(data.seq_data.values())
    for seq in seqs[:1] if data.is_prompt else seqs:
        start = len(data.computed_block_nums) * self.block_size if data.is_prompt else seq.get_len() - 1
        positions = list(range(start, seq.get_len()))
        table = data.block_tables[seq.seq_id]
        slots = [table[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
        batch.append(NewTokens(seq.get_token_ids(start), positions, slots, table))
    return batch
