"""No more of a sequence can be cached than its prompt."""

from refimpl.serving.plain_engine import NewTokens


def prepare(self, data):
    batch = []
    for seq_id, seq in data.seq_data.items():
        cached = min(len(data.computed_block_nums) * self.block_size, seq.get_prompt_len())
        start = cached if data.is_prompt else seq.get_len() - 1
        positions = list(range(start, seq.get_len()))
        table = data.block_tables[seq_id]
        slots = [table[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
        batch.append(NewTokens(seq.get_token_ids(start), positions, slots, table))
    return batch
