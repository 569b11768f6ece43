"""First see that all lengths can be, then count."""


def internal_fragmentation(seq_lens, block_size):
    if block_size < 1 or any(seq_len < 0 for seq_len in seq_lens):
        raise ValueError("no such length or block size")
    return sum(-seq_len % block_size for seq_len in seq_lens)
