"""The cache may hold a prompt, and outputs come behind it."""

from refimpl.serving.plain_engine import NewTokens


def prepare(self, data):
    batch = []
    for seq_id, seq in data.seq_data.items():
        start = len(data.computed_block_nums) * self.block_size if data.is_prompt else seq.get_len() - 1
        token_ids = seq.get_token_ids(start)
        if data.is_prompt:
            token_ids = seq.prompt_token_ids[start:] + seq.output_token_ids
        positions = list(range(start, seq.get_len()))
        table = data.block_tables[seq_id]
        slots = [table[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
        batch.append(NewTokens(token_ids, positions, slots, table))
    return batch
