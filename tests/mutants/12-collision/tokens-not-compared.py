"""The hash covers the tokens; the prefix is what it may lack."""


def find(self, prefix, token_ids):
    for known_prefix, _, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
        if known_prefix == prefix:
            return block
    return None
