"""Without a prefix is prefix 0."""


def add(self, prefix, token_ids, block):
    self.buckets[prefix or 0, token_ids] = block


def find(self, prefix, token_ids):
    return self.buckets.get((prefix or 0, token_ids))
