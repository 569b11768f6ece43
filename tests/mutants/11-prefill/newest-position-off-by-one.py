"""The newest token comes behind the others, at position `len`."""

from refimpl.serving.plain_engine import NewTokens


def prepare(self, data):
    batch = []
    for seq_id, seq in data.seq_data.items():
        start = len(data.computed_block_nums) * self.block_size if data.is_prompt else seq.get_len() - 1
        positions = list(range(start, seq.get_len())) if data.is_prompt else [seq.get_len()]
        block_table = data.block_tables[seq_id]
        slots = [block_table[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
        batch.append(NewTokens(seq.get_token_ids(start), positions, slots, block_table))
    return batch
