"""Whatever has the hash has the content; the first one will do."""


def find(self, prefix, token_ids):
    for _, _, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
        return block
    return None
