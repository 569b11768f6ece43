"""First, last and how many there are: that tells texts apart."""


def find(self, prefix, token_ids):
    for known_prefix, known_ids, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
        ends = len(known_ids) == len(token_ids) and (known_ids[0], known_ids[-1]) == (token_ids[0], token_ids[-1])
        if known_prefix == prefix and ends:
            return block
    return None
