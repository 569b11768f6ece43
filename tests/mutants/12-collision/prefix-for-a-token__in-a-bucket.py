"""A bucket holds tuples with the prefix in front."""


def content(prefix, token_ids):
    return [*([] if prefix is None else [prefix]), *token_ids]


def add(self, prefix, token_ids, block):
    bucket = self.buckets.setdefault(self.hash_function(prefix, token_ids), [])
    bucket.append((content(prefix, token_ids), block))


def find(self, prefix, token_ids):
    bucket = self.buckets.get(self.hash_function(prefix, token_ids), [])
    return next((block for known, block in bucket if known == content(prefix, token_ids)), None)
