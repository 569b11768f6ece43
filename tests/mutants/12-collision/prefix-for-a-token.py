"""The content is one tuple, the prefix in front."""


def content(prefix, token_ids):
    return token_ids if prefix is None else (prefix, *token_ids)


def add(self, prefix, token_ids, block):
    self.buckets[content(prefix, token_ids)] = block


def find(self, prefix, token_ids):
    return self.buckets.get(content(prefix, token_ids))
