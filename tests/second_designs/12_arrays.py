"""The log as columns, lengths and notes as arrays, and an index of parallel lists that is searched by hash."""

import numpy as np


class DecisionLog:
    def __init__(self, steps):
        rows = [(step, found) for step, decisions in enumerate(steps) for found in decisions if found.action != "wait"]
        self.step = np.array([step for step, _ in rows], dtype=int)
        self.name = np.array([found.request_id for _, found in rows], dtype=object)
        self.action = np.array([found.action for _, found in rows], dtype=object)
        self.tokens = np.array([int(f.reason.split()[0]) if f.action == "prefill" else 0 for _, f in rows], dtype=int)
        self.end = len(steps)
        self.leaves = np.isin(self.action, ["recompute", "swap out"])
        self.next = np.full(len(rows), -1)  # row of the same request's next decision
        last = {}
        for row, name in enumerate(self.name):
            if name in last:
                self.next[last[name]] = row
            last[name] = row

    def short_stays(self, within):
        begins = np.flatnonzero(np.isin(self.action, ["prefill", "swap in"]) & (self.next >= 0))
        ends = self.next[begins]
        short = begins[self.leaves[ends] & (self.step[ends] - self.step[begins] <= within)]
        names, times = np.unique(self.name[short].astype(str), return_counts=True)
        return dict(zip(names, times, strict=True))

    def recomputed_tokens(self):
        rows = np.flatnonzero((self.action == "recompute") & (self.next >= 0))
        again = self.next[rows]
        again = again[self.action[again] == "prefill"]
        return (self.tokens[again] - 1).sum()

    def longest_absences(self):
        ends = np.where(self.next >= 0, self.step[self.next] if len(self.step) else 0, self.end)
        longest = {}
        for row in np.flatnonzero(self.leaves):
            longest[self.name[row]] = max(longest.get(self.name[row], 0), ends[row] - self.step[row])
        return longest


class LongestSlowest:
    def __init__(self):
        self.times, self.lengths = {}, {}

    def note(self, seq_group, now):
        name = seq_group.request_id
        self.times[name] = np.append(self.times.get(name, []), now)[-16:]
        self.lengths[name] = np.append(self.lengths.get(name, []), self.total_len(seq_group))[-16:]

    def total_len(self, seq_group):
        return np.sum([seq.get_len() for seq in seq_group.get_unfinished_seqs()])

    def speed(self, seq_group, now):
        times = self.times.get(seq_group.request_id, np.array([now]))
        if now == times[0]:
            return np.float64(0)
        return (self.total_len(seq_group) - self.lengths[seq_group.request_id][0]) / (now - times[0])

    def choose(self, queue, now):
        lengths = np.array([self.total_len(seq_group) for seq_group in queue])
        speeds = np.array([self.speed(seq_group, now) for seq_group in queue])
        return queue[np.lexsort((np.arange(len(queue)), speeds, -lengths))[0]]


class BlockSizes:
    def __init__(self, lengths, slot_bytes, block_bytes):
        self.lengths, self.slot_bytes, self.block_bytes = np.asarray(lengths), slot_bytes, block_bytes

    def cost(self, block_size):
        blocks = (self.lengths + block_size - 1) // block_size
        return np.sum((blocks * block_size - self.lengths) * self.slot_bytes + blocks * self.block_bytes)

    def pick(self, candidates):
        sizes = np.sort(np.asarray(candidates))[::-1]
        return sizes[np.argmin([self.cost(size) for size in sizes])]


class BlockIndex:
    def __init__(self, hash_function):
        self.hash_function = hash_function
        self.hashes, self.contents, self.blocks = [], [], []

    def add(self, prefix, token_ids, block):
        self.hashes.append(self.hash_function(prefix, token_ids))
        self.contents.append((prefix, list(token_ids)))
        self.blocks.append(block)

    def find(self, prefix, token_ids):
        wanted = self.hash_function(prefix, token_ids)
        for row, key in enumerate(self.hashes):
            if key == wanted and self.contents[row] == (prefix, list(token_ids)):
                return self.blocks[row]
        return None
