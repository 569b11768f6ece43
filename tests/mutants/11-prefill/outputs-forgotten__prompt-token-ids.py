"""The prompt's tokens are in `prompt_token_ids`."""

from refimpl.serving.plain_engine import NewTokens


def prepare(self, data):
    batch = []
    for seq_id, seq in data.seq_data.items():
        table = data.block_tables[seq_id]
        if data.is_prompt:
            start = len(data.computed_block_nums) * self.block_size
            tokens = seq.prompt_token_ids[start:]
        else:
            start, tokens = seq.get_len() - 1, seq.get_token_ids(seq.get_len() - 1)
        positions = [start + i for i in range(len(tokens))]
        slots = [table[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
        batch.append(NewTokens(tokens, positions, slots, table))
    return batch
