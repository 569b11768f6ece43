"""The first entry of a hash is the one to look at."""


def find(self, prefix, token_ids):
    for known_prefix, known_ids, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
        return block if (known_prefix, known_ids) == (prefix, token_ids) else None
    return None
