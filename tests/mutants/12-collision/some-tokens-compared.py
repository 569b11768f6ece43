"""The first token tells whether it is the same text."""


def find(self, prefix, token_ids):
    for known_prefix, known_ids, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
        if known_prefix == prefix and known_ids[0] == token_ids[0]:
            return block
    return None
