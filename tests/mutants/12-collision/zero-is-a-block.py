"""What is not found is false."""


def find(self, prefix, token_ids):
    found = None
    for known_prefix, known_ids, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
        if (known_prefix, known_ids) == (prefix, token_ids):
            found = block
    return found or None
