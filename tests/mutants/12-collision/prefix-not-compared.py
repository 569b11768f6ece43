"""A block holds its tokens, and those are compared."""


def find(self, prefix, token_ids):
    for _, known_ids, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
        if known_ids == token_ids:
            return block
    return None
