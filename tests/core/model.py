"""What the block manager has to do, said once more in the most obvious way, for tests to compare with.

Plain dicts, lists and searches over everything; no count is stored that can be counted, and nothing of refimpl is
imported. A block is a pair ("GPU" or "CPU", number), a key is the tuple of tokens that a block stands for.
"""

import math


class Refused(Exception):
    """The call is one that has to be refused, with nothing changed."""


class StackPool:
    """Free blocks without caching: a pile, the one put down last is taken first."""

    def __init__(self, device, num_blocks, events):
        self.device = device
        self.pile = list(range(num_blocks))

    def num_free(self):
        return len(self.pile)

    def find(self, key):
        return None

    def take(self, key, end):
        return (self.device, self.pile.pop())

    def release(self, block):
        self.pile.append(block[1])


class ContentPool:
    """Free blocks with caching: new numbers first, then the least recently used; labels outlive their owners."""

    def __init__(self, device, num_blocks, events):
        self.device = device
        self.events = events
        self.num_blocks = num_blocks
        self.label = {}  # number -> key
        self.end = {}  # number -> tokens from the start of the sequence to the end of the block
        self.stamp = {}  # number -> last access
        self.computed = set()  # numbers
        self.released = []  # free numbers, freed first first

    def num_free(self):
        return self.num_blocks - len(self.label) + len(self.released)

    def find(self, key):
        """The block with this label, live or free."""
        return next(((self.device, number) for number, label in self.label.items() if label == key), None)

    def take(self, key, end):
        found = self.find(key)
        if found:
            number = found[1]
            if number in self.released:
                self.released.remove(number)
                self.events["hit on a free block"] += 1
            return found
        if len(self.label) < self.num_blocks:
            number = len(self.label)
        else:
            number = min(self.released, key=lambda n: (self.stamp[n], -self.end[n], self.released.index(n)))
            self.released.remove(number)
            self.computed.discard(number)
            self.events["eviction"] += 1
        self.label[number], self.end[number], self.stamp[number] = key, end, -1
        return (self.device, number)

    def release(self, block):
        self.released.append(block[1])


class Model:
    """Tables of blocks by sequence id. Sequences come as ids and tuples of tokens; statuses are the caller's."""

    def __init__(self, block_size, num_gpu_blocks, num_cpu_blocks, watermark, caching, events):
        pool = ContentPool if caching else StackPool
        self.block_size = block_size
        self.num_gpu_blocks = num_gpu_blocks
        self.reserved = math.floor(watermark * num_gpu_blocks)
        self.caching = caching
        self.pools = {"GPU": pool("GPU", num_gpu_blocks, events), "CPU": pool("CPU", num_cpu_blocks, events)}
        self.events = events  # what happened -> how often
        self.tables = {}
        self.num_unique = 0

    def holders(self, block):
        return [seq_id for seq_id, table in self.tables.items() if block in table]

    def unique_key(self):
        self.num_unique += 1
        return ("unique", self.num_unique)

    def is_unique(self, key):
        return key[:1] == ("unique",)

    def num_blocks_for(self, tokens):
        return math.ceil(len(tokens) / self.block_size)

    def answer(self, required):
        if self.num_gpu_blocks - required < self.reserved:
            return "NEVER"
        return "OK" if self.pools["GPU"].num_free() - required >= self.reserved else "LATER"

    def let_go(self, blocks):
        """Blocks that one table holds no more, in this order; free when no other table does."""
        for block in blocks:
            if not self.holders(block):
                self.pools[block[0]].release(block)

    def num_to_take(self, device, keys):
        """Free blocks that it takes to have all these keys: those that nobody holds yet."""
        blocks = [self.pools[device].find(key) for key in keys]
        return sum(1 for block in blocks if block is None or not self.holders(block))

    def distinct(self, seq_ids):
        return list(dict.fromkeys(block for seq_id in seq_ids for block in self.tables[seq_id]))

    def can_allocate(self, waiting):
        if not waiting:
            raise Refused
        return self.answer(self.num_blocks_for(waiting[0][1]))

    def allocate(self, waiting):
        if not waiting or any(seq_id in self.tables for seq_id, _ in waiting):
            raise Refused
        seq_id, tokens = waiting[0]
        ends = [(i + 1) * self.block_size for i in range(self.num_blocks_for(tokens))]
        keys = [tokens[:end] if self.caching else self.unique_key() for end in ends]
        if self.num_to_take("GPU", keys) > self.pools["GPU"].num_free():
            raise Refused
        table = [self.pools["GPU"].take(key, end) for key, end in zip(keys, ends, strict=True)]
        for seq_id, _ in waiting:
            self.tables[seq_id] = list(table)

    def can_append_slots(self, num_running):
        return num_running <= self.pools["GPU"].num_free()

    def append_slots(self, seq_id, tokens):
        if seq_id not in self.tables:
            raise Refused
        table, pool = self.tables[seq_id], self.pools["GPU"]
        missing = self.num_blocks_for(tokens) - len(table)
        if missing > 1 or any(device == "CPU" for device, _ in table):
            raise Refused
        full = self.caching and len(tokens) % self.block_size == 0
        key, end = tokens if full else self.unique_key(), self.num_blocks_for(tokens) * self.block_size
        if missing or len(self.holders(table[-1])) > 1:
            if self.num_to_take("GPU", [key]) > pool.num_free():
                raise Refused
            new = pool.take(key, end)
            if missing:
                table.append(new)
                return []
            old, table[-1] = table[-1], new
            self.events["copy on write"] += 1
            return [(old[1], new[1])]
        if self.caching:
            self.relabel_last(table, key, full)
        return []

    def relabel_last(self, table, key, full):
        """Written in place: full and known, the known block; full, its content; partial, nobody else's business."""
        pool, last = self.pools["GPU"], table[-1]
        known = pool.find(key)
        if known and known != last:
            table.pop()
            self.let_go([last])
            self.events["promotion to a known block"] += 1
            table.append(pool.take(key, pool.end[last[1]]))
        elif full or not self.is_unique(pool.label[last[1]]):
            self.events["promotion in place" if full else "content key given up"] += 1
            pool.label[last[1]] = key

    def fork(self, parent_id, child_id):
        if child_id in self.tables:
            raise Refused
        if parent_id in self.tables:
            self.tables[child_id] = list(self.tables[parent_id])

    def free(self, seq_id):
        self.let_go(self.tables.pop(seq_id, []))

    def reset(self):
        for seq_id in list(self.tables):
            self.free(seq_id)

    def can_swap_out(self, seq_ids):
        return len(self.distinct(seq_ids)) <= self.pools["CPU"].num_free()

    def can_swap_in(self, unfinished, num_swapped):
        return self.answer(len(self.distinct(unfinished)) + num_swapped)

    def swap_out(self, seq_ids):
        return self.swap(seq_ids, "GPU", "CPU")

    def swap_in(self, seq_ids):
        return self.swap(seq_ids, "CPU", "GPU")

    def swap(self, seq_ids, source, destination):
        if any(seq_id not in self.tables for seq_id in seq_ids):
            raise Refused
        blocks = self.distinct(seq_ids)
        if any(device != source for device, _ in blocks):
            raise Refused
        labels = [(self.label_of(block), self.end_of(block)) for block in blocks]
        if self.num_to_take(destination, [key for key, _ in labels]) > self.pools[destination].num_free():
            raise Refused
        new = {block: self.pools[destination].take(*label) for block, label in zip(blocks, labels, strict=True)}
        for seq_id in seq_ids:
            for i, block in enumerate(self.tables[seq_id]):
                self.tables[seq_id][i] = new[block]
                self.let_go([block])
        self.events[f"block swapped to {destination}"] += len(blocks)
        return [(block[1], new[block][1]) for block in blocks]

    def label_of(self, block):
        return self.pools[block[0]].label[block[1]] if self.caching else None

    def end_of(self, block):
        return self.pools[block[0]].end[block[1]] if self.caching else 0

    def access_all_blocks_in_seq(self, seq_id, now):
        for device, number in self.tables[seq_id] if self.caching else []:
            self.pools[device].stamp[number] = now

    def mark_blocks_as_computed(self, lengths):
        """`lengths`: sequence id -> tokens, of every sequence of a group."""
        for seq_id, length in lengths.items() if self.caching else []:
            for device, number in self.tables.get(seq_id, [])[: length // self.block_size]:
                self.pools[device].computed.add(number)

    def get_common_computed_block_ids(self, seq_ids):
        common = []
        tables = [self.tables.get(seq_id, [])[:-1] for seq_id in seq_ids]
        for i in range(min(map(len, tables), default=0) if self.caching else 0):
            numbers = {table[i][1] for table in tables}
            if len(numbers) > 1 or any(table[i][1] not in self.pools[table[i][0]].computed for table in tables):
                break
            common += numbers
        return common


class ShadowCache:
    """Which token's keys and values lie in which slot, on both devices; absent where nothing was written yet."""

    def __init__(self, block_size):
        self.block_size = block_size
        self.slots = {}  # (device, block number, offset) -> token

    def move(self, pairs, source, destination):
        """Whole blocks, one pair after the other; a pair's source is read before anything is written to it."""
        written = set()
        for src, dst in pairs:
            assert (source, src) not in written, f"{source} block {src} is read after it was written in one move"
            written.add((destination, dst))
            for offset in range(self.block_size):
                self.slots[destination, dst, offset] = self.slots.get((source, src, offset))

    def slot(self, table, position):
        device, number = table[position // self.block_size]
        return device, number, position % self.block_size

    def write(self, table, tokens, start):
        for position in range(start, len(tokens)):
            self.slots[self.slot(table, position)] = tokens[position]

    def read(self, table, length):
        return [self.slots.get(self.slot(table, position)) for position in range(length)]
