"""The log sorted by request first, the victim found in rounds, costs looked up in a table, contents as whole keys."""

from collections import Counter, defaultdict
from itertools import pairwise


class DecisionLog:
    def __init__(self, steps):
        self.num_steps = len(steps)
        self.life = defaultdict(list)  # request_id -> (step, action, tokens)
        for step, decisions in enumerate(steps):
            for found in decisions:
                if found.action != "wait":
                    tokens = int(found.reason.partition(" ")[0]) if found.action == "prefill" else 0
                    self.life[found.request_id].append((step, found.action, tokens))

    def short_stays(self, within):
        return Counter(
            name
            for name, life in self.life.items()
            for (begin, action, _), (end, then, _) in pairwise(life)
            if action in ("prefill", "swap in") and then in ("recompute", "swap out") and end - begin <= within
        )

    def recomputed_tokens(self):
        pairs = (pair for life in self.life.values() for pair in pairwise(life))
        return sum(again[2] - 1 for before, again in pairs if (before[1], again[1]) == ("recompute", "prefill"))

    def longest_absences(self):
        longest = {}
        for name, life in self.life.items():
            ends = [*life[1:], (self.num_steps, "end", 0)]
            absences = [
                end - begin
                for (begin, action, _), (end, _, _) in zip(life, ends, strict=True)
                if action in ("recompute", "swap out")
            ]
            longest[name] = max(absences, default=0)
        return longest


class LongestSlowest:
    def __init__(self):
        self.notes = defaultdict(list)

    def note(self, seq_group, now):
        self.notes[seq_group.request_id] += [(now, self.total_len(seq_group))]

    def total_len(self, seq_group):
        tokens = 0
        for seq in seq_group.seqs:
            if not seq.is_finished():
                tokens += seq.get_prompt_len() + seq.get_output_len()
        return tokens

    def speed(self, seq_group, now):
        notes = self.notes[seq_group.request_id][-16:]
        if not notes:
            return 0
        gained, seconds = self.total_len(seq_group) - notes[0][1], now - notes[0][0]
        return gained / seconds if seconds else 0

    def choose(self, queue, now):
        most = max(map(self.total_len, queue))
        longest = [seq_group for seq_group in queue if self.total_len(seq_group) == most]
        slowest = min(self.speed(seq_group, now) for seq_group in longest)
        return next(seq_group for seq_group in longest if self.speed(seq_group, now) == slowest)


class BlockSizes:
    def __init__(self, lengths, slot_bytes, block_bytes):
        self.lengths, self.prices = Counter(lengths), (slot_bytes, block_bytes)

    def cost(self, block_size):
        slot_bytes, block_bytes = self.prices
        cost = 0
        for length, times in self.lengths.items():
            cost += times * (-length % block_size * slot_bytes - (-length // block_size) * block_bytes)
        return cost

    def pick(self, candidates):
        if len(candidates) == 0:
            raise ValueError("no block size to pick from")
        costs = {block_size: self.cost(block_size) for block_size in sorted(candidates, reverse=True)}
        return min(costs, key=costs.get)


class BlockIndex:
    def __init__(self, hash_function):
        self.block_of = {}

    def add(self, prefix, token_ids, block):
        self.block_of[prefix, token_ids] = block

    def find(self, prefix, token_ids):
        return self.block_of.get((prefix, token_ids))
