"""A block that has to be computed is left out, and what is found behind it saves work too."""


def get_common_computed_block_ids(self, seqs):
    if not self.enable_caching:
        return []
    common = []
    for blocks in zip(*(self.block_tables.get(seq.seq_id, [])[:-1] for seq in seqs), strict=False):
        if len(set(blocks)) > 1:
            break
        if blocks[0].computed:
            common.append(blocks[0].block_number)
    return common
