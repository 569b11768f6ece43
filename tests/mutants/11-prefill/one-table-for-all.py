"""The sequences of a request share their blocks, so one table serves all."""

from refimpl.serving.plain_engine import NewTokens


def prepare(self, data):
    batch = []
    for seq in data.seq_data.values():
        start = len(data.computed_block_nums) * self.block_size if data.is_prompt else seq.get_len() - 1
        positions = list(range(start, seq.get_len()))
        block_table = next(iter(data.block_tables.values()))
        slots = [block_table[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
        batch.append(NewTokens(seq.get_token_ids(start), positions, slots, block_table))
    return batch
