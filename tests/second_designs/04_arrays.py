"""Keys are digests, free blocks stand in one sorted list, and all an allocator knows of its blocks is columns.

A block is a handle on a row of the columns, made anew each time; new rows are taken from the end of the pool. The
manager keeps tables of row numbers, and looks contents up by the tokens themselves.
"""

import hashlib
from bisect import insort

NOBODY = -1


class PrefixKeys:
    """A chain of SHA-256 digests: no dictionary, and no key is ever forgotten."""

    def of_tokens(self, token_ids, block_size, extra_keys=()):
        digest, keys = hashlib.sha256(repr(("extra", tuple(extra_keys))).encode()).digest(), ()
        for start in range(0, len(token_ids), block_size):
            own = ",".join(map(str, token_ids[start : start + block_size])).encode()
            digest = hashlib.sha256(digest + own).digest()
            keys += (digest,)
        return keys


class LRUEvictor:
    """The list is always in order; its first entry is the next victim."""

    def __init__(self):
        self.order, self.entry_of, self.turn = [], {}, 0

    @property
    def num_blocks(self):
        return len(self.order)

    def __contains__(self, block_hash):
        return block_hash in self.entry_of

    def add(self, block):
        if block.block_hash in self.entry_of:
            raise ValueError("this key is here already")
        self.turn += 1
        entry = (block.last_accessed, -block.num_hashed_tokens, self.turn, block)
        self.entry_of[block.block_hash] = entry
        insort(self.order, entry, key=lambda entry: entry[:3])

    def remove(self, block_hash):
        if block_hash not in self.entry_of:
            raise ValueError("this key is not here")
        entry = self.entry_of.pop(block_hash)
        self.order.remove(entry)
        return entry[3]

    def evict(self):
        if not self.order:
            raise ValueError("nothing is free")
        block = self.remove(self.order[0][3].block_hash)
        block.computed, block.last_accessed = False, -1
        return block


def column(name):
    """A field of the handle that is an entry of the pool's column."""

    def read(self):
        return getattr(self.pool, name)[self.block_number]

    def write(self, value):
        getattr(self.pool, name)[self.block_number] = value

    return property(read, write)


class Handle:
    def __init__(self, pool, number):
        self.pool, self.block_number = pool, number
        self.device, self.block_size = pool.device, pool.block_size

    block_hash = column("hashes")
    num_hashed_tokens = column("lengths")
    ref_count = column("ref_counts")
    last_accessed = column("stamps")
    computed = column("computed")


class CachedBlockAllocator:
    def __init__(self, device, block_size, num_blocks):
        self.device, self.block_size, self.num_blocks = device, block_size, num_blocks
        self.hashes, self.lengths = [NOBODY] * num_blocks, [0] * num_blocks
        self.ref_counts, self.stamps = [0] * num_blocks, [-1] * num_blocks
        self.computed, self.freed_at = [False] * num_blocks, [0] * num_blocks
        self.unused = list(range(num_blocks))
        self.row_of, self.clock = {}, 0

    def get_num_free_blocks(self):
        return self.ref_counts.count(0)

    def get_num_total_blocks(self):
        return self.num_blocks

    def contains_block(self, block_hash):
        return block_hash in self.row_of

    def allocate(self, block_hash=None, num_hashed_tokens=0):
        key = object() if block_hash is None else block_hash
        if key not in self.row_of:
            row = self._row()
            self.row_of.pop(self.hashes[row], None)
            self.row_of[key] = row
            self.hashes[row], self.lengths[row] = key, num_hashed_tokens
            self.stamps[row], self.computed[row] = -1, False
        row = self.row_of[key]
        self.ref_counts[row] += 1
        return Handle(self, row)

    def _row(self):
        if self.unused:
            return self.unused.pop()
        free = [row for row in range(self.num_blocks) if not self.ref_counts[row]]
        if not free:
            raise ValueError("every block has an owner")
        return min(free, key=lambda row: (self.stamps[row], -self.lengths[row], self.freed_at[row]))

    def free(self, block):
        row = block.block_number
        if self.ref_counts[row] < 1:
            raise ValueError("nobody holds it")
        self.ref_counts[row] -= 1
        self.clock += 1
        self.freed_at[row] = self.clock


class BlockSpaceManager:
    """Shares full blocks only; the tokens up to a block's end are its name."""

    def __init__(self, block_size, num_gpu_blocks, num_cpu_blocks, watermark=0.01, enable_caching=False):
        self.block_size, self.caching = block_size, enable_caching
        self.owners = [0] * num_gpu_blocks
        self.content, self.known = [None] * num_gpu_blocks, [False] * num_gpu_blocks
        self.tables = {}

    def get_num_free_gpu_blocks(self):
        return self.owners.count(0)

    def get_block_table(self, seq):
        return list(self.tables[seq.seq_id])

    def _take(self, content):
        rows = range(len(self.owners))
        row = next((row for row in rows if content and self.content[row] == content), None)
        if row is None:
            free = [row for row in rows if not self.owners[row]]
            if not free:
                raise ValueError("no block is free")
            row = min(free, key=lambda row: (self.content[row] is not None, row))
            self.content[row], self.known[row] = content, False
        self.owners[row] += 1
        return row

    def _full(self, seq, index):
        end = (index + 1) * self.block_size
        return tuple(seq.get_token_ids()[:end]) if self.caching and end <= seq.get_len() else None

    def allocate(self, group):
        for seq in group.get_seqs():
            self.tables[seq.seq_id] = [self._take(self._full(seq, index)) for index in range(seq.n_blocks)]

    def append_slots(self, seq):
        table = self.tables[seq.seq_id]
        last = seq.n_blocks - 1
        if last == len(table):
            table.append(self._take(self._full(seq, last)))
            return []
        old = table[last]
        if self.owners[old] == 1:
            self.content[old] = self._full(seq, last)
            return []
        table[last] = self._take(self._full(seq, last))
        self.owners[old] -= 1
        return [(old, table[last])]

    def fork(self, parent, child):
        self.tables[child.seq_id] = list(self.tables[parent.seq_id])
        for row in self.tables[child.seq_id]:
            self.owners[row] += 1

    def free(self, seq):
        for row in self.tables.pop(seq.seq_id, []):
            self.owners[row] -= 1

    def mark_blocks_as_computed(self, group):
        for seq in group.get_seqs():
            for index, row in enumerate(self.tables.get(seq.seq_id, [])):
                self.known[row] |= self._full(seq, index) is not None

    def get_common_computed_block_ids(self, seqs):
        rows = []
        for column in zip(*(self.tables.get(seq.seq_id, [])[:-1] for seq in seqs), strict=False):
            if not self.known[column[0]] or len({*column}) > 1:
                break
            rows.append(column[0])
        return tuple(rows)
