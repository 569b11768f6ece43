"""Two contents of one hash must be a mistake."""


def add(self, prefix, token_ids, block):
    key = self.hash_function(prefix, token_ids)
    if key in self.buckets:
        raise ValueError(f"hash {key} is taken")
    self.buckets[key] = [(prefix, token_ids, block)]
