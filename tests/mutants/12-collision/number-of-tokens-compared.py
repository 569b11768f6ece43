"""The same hash and the same length is the same text."""


def find(self, prefix, token_ids):
    for known_prefix, known_ids, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
        if known_prefix == prefix and len(known_ids) == len(token_ids):
            return block
    return None
