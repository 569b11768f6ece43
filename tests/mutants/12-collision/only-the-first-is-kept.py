"""One hash, one entry, and who was there first stays."""


def add(self, prefix, token_ids, block):
    self.buckets.setdefault(self.hash_function(prefix, token_ids), (prefix, token_ids, block))


def find(self, prefix, token_ids):
    known = self.buckets.get(self.hash_function(prefix, token_ids))
    return known[2] if known is not None and known[:2] == (prefix, token_ids) else None
