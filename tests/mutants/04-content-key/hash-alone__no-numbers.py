"""The chained hash of vLLM 0.5, without a dictionary."""


def of_tokens(self, token_ids, block_size, extra_keys=()):
    prefix = hash(extra_keys)
    keys = []
    for start in range(0, len(token_ids), block_size):
        prefix = hash((prefix, *token_ids[start : start + block_size]))
        keys.append(prefix)
    return keys
