"""The same tokens are the same content."""


def find(self, prefix, token_ids):
    for known_prefix, known_ids, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
        if known_prefix == prefix and sorted(known_ids) == sorted(token_ids):
            return block
    return None
