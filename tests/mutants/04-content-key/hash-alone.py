"""That is what hash is for."""


def key(self, prefix, token_ids):
    return hash((prefix, token_ids))
