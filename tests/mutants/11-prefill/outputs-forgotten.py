"""A prompt is what the request came with."""

from refimpl.serving.plain_engine import NewTokens


def prepare(self, data):
    batch = []
    for seq_id, seq in data.seq_data.items():
        start = len(data.computed_block_nums) * self.block_size if data.is_prompt else seq.get_len() - 1
        end = seq.get_prompt_len() if data.is_prompt else seq.get_len()
        positions = list(range(start, end))
        block_table = data.block_tables[seq_id]
        slots = [block_table[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
        batch.append(NewTokens(seq.get_token_ids()[start:end], positions, slots, block_table))
    return batch
