"""A good hash tells contents apart."""


def add(self, prefix, token_ids, block):
    self.buckets[self.hash_function(prefix, token_ids)] = block


def find(self, prefix, token_ids):
    return self.buckets.get(self.hash_function(prefix, token_ids))
