"""A request is one sequence."""

from refimpl.serving.plain_engine import NewTokens


def prepare(self, data):
    seq_id, seq = next(iter(data.seq_data.items()))
    start = len(data.computed_block_nums) * self.block_size if data.is_prompt else seq.get_len() - 1
    positions = list(range(start, seq.get_len()))
    table = data.block_tables[seq_id]
    slots = [table[p // self.block_size] * self.block_size + p % self.block_size for p in positions]
    return [NewTokens(seq.get_token_ids(start), positions, slots, table)]
