"""A key is the digest of what Python prints of the tokens up to the end of the block."""

import hashlib


def of_tokens(self, token_ids, block_size, extra_keys=()):
    ends = range(block_size, len(token_ids) + block_size, block_size)
    return [hashlib.sha256(f"{token_ids[:end]} {extra_keys}".encode()).hexdigest() for end in ends]
