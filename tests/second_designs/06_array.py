"""A whole manager over arrays: owners and stamps of blocks, tables as rows of numbers, contents as their tokens."""

import math
from types import SimpleNamespace

import numpy as np

from refimpl import AllocStatus, Device, SequenceStatus


class Pool:
    """One device's blocks; a content is all tokens up to the block's end, None what nobody may look for."""

    def __init__(self, device, num_blocks):
        self.device, self.num_blocks, self.clock = device, num_blocks, 0
        self.owners, self.ends, self.freed_at = np.zeros((3, num_blocks), dtype=np.int64)
        self.stamps, self.computed = np.full(num_blocks, -1.0), np.zeros(num_blocks, dtype=bool)
        self.contents = [None] * num_blocks
        self.number_of = {}  # content -> number

    def num_free(self):
        return int(np.count_nonzero(self.owners == 0))

    def num_to_take(self, contents):
        known = [self.number_of.get(content) if content else None for content in contents]
        return sum(number is None or self.owners[number] == 0 for number in known)

    def rename(self, number, content):
        if self.contents[number] is not None:
            del self.number_of[self.contents[number]]
        self.contents[number] = content
        if content is not None:
            self.number_of[content] = number

    def take(self, content, end):
        number = self.number_of.get(content) if content else None
        if number is None:
            (free,) = np.nonzero(self.owners == 0)
            known = np.array([self.contents[number] is not None for number in free])
            order = np.lexsort((self.freed_at[free], -self.ends[free], self.stamps[free], known))
            number = int(free[order[0]])
            self.rename(number, content)
            self.ends[number], self.stamps[number], self.computed[number] = end, -1, False
        self.owners[number] += 1
        return number

    def let_go(self, number):
        self.owners[number] -= 1
        self.clock += 1
        self.freed_at[number] = self.clock


class Handle:
    def __init__(self, pool, block_size, number):
        self.pool, self.block_size, self.block_number = pool, block_size, number

    @property
    def device(self):
        return self.pool.device

    @property
    def ref_count(self):
        return self.pool.owners[self.block_number]


class BlockSpaceManager:
    def __init__(self, block_size, num_gpu_blocks, num_cpu_blocks, watermark=0.01, enable_caching=False):
        self.block_size, self.enable_caching = block_size, enable_caching
        self.watermark_blocks = math.floor(watermark * num_gpu_blocks)
        self.gpu, self.cpu = Pool(Device.GPU, num_gpu_blocks), Pool(Device.CPU, num_cpu_blocks)
        self.rows = {}  # seq_id -> (pool, numpy array of block numbers)

    @property
    def block_tables(self):
        return {
            seq_id: [Handle(pool, self.block_size, int(number)) for number in row]
            for seq_id, (pool, row) in self.rows.items()
        }

    def get_block_table(self, seq):
        return self.rows[seq.seq_id][1].tolist()

    def get_num_free_gpu_blocks(self):
        return self.gpu.num_free()

    def get_num_free_cpu_blocks(self):
        return self.cpu.num_free()

    def _decide(self, required):
        room = np.array([self.gpu.num_blocks, self.gpu.num_free()]) - self.watermark_blocks
        never, later = required > room
        return AllocStatus.NEVER if never else AllocStatus.LATER if later else AllocStatus.OK

    def _waiting(self, group):
        waiting = [seq for seq in group.get_seqs() if seq.status is SequenceStatus.WAITING]
        if not waiting:
            raise ValueError("nobody waits")
        return waiting

    def can_allocate(self, group):
        return self._decide(-(-self._waiting(group)[0].get_len() // self.block_size))

    def allocate(self, group):
        waiting = self._waiting(group)
        if any(seq.seq_id in self.rows for seq in waiting):
            raise ValueError("it has its blocks")
        tokens = tuple(waiting[0].get_token_ids())
        ends = range(self.block_size, len(tokens) + self.block_size, self.block_size)
        contents = [tokens[:end] if self.enable_caching else None for end in ends]
        self._insist_on(self.gpu, contents)
        row = np.array([self.gpu.take(*label) for label in zip(contents, ends, strict=True)], dtype=np.int64)
        np.add.at(self.gpu.owners, row, len(waiting) - 1)
        for seq in waiting:
            self.rows[seq.seq_id] = (self.gpu, row.copy())

    def _insist_on(self, pool, contents):
        if pool.num_to_take(contents) > pool.num_free():
            raise ValueError("too few free blocks")

    def can_append_slots(self, group, num_lookahead_slots=0):
        if num_lookahead_slots:
            raise NotImplementedError
        return self.gpu.num_free() >= sum(seq.status is SequenceStatus.RUNNING for seq in group.get_seqs())

    def append_slots(self, seq, num_lookahead_slots=0):
        if num_lookahead_slots:
            raise NotImplementedError
        pool, row = self.rows[seq.seq_id]
        tokens, size = tuple(seq.get_token_ids()), self.block_size
        last, offset = divmod(len(tokens) - 1, size)
        if pool is self.cpu or last > len(row):
            raise ValueError("swapped out, or calls were missed")
        content = tokens if self.enable_caching and offset == size - 1 else None
        if last < len(row) and pool.owners[row[last]] == 1:
            self._write_in_place(row, last, content)
            return []
        self._insist_on(pool, [content])
        number = pool.take(content, (last + 1) * size)
        if last == len(row):
            self.rows[seq.seq_id] = (pool, np.append(row, number))
            return []
        old, row[last] = int(row[last]), number
        pool.let_go(old)
        return [(old, number)]

    def _write_in_place(self, row, last, content):
        known = self.gpu.number_of.get(content) if content else None
        if known is None or known == row[last]:
            self.gpu.rename(row[last], content)
        else:
            self.gpu.let_go(row[last])
            row[last] = self.gpu.take(content, (last + 1) * self.block_size)

    def fork(self, parent, child):
        if child.seq_id in self.rows:
            raise ValueError("the child has its blocks")
        if parent.seq_id in self.rows:
            pool, row = self.rows[parent.seq_id]
            pool.owners[row] += 1
            self.rows[child.seq_id] = (pool, row.copy())

    def free(self, seq):
        if seq.seq_id in self.rows:
            pool, row = self.rows.pop(seq.seq_id)
            for number in row:
                pool.let_go(number)

    def reset(self):
        for seq_id in list(self.rows):
            self.free(SimpleNamespace(seq_id=seq_id))

    def _distinct(self, seqs):
        rows = [self.rows[seq.seq_id][1].tolist() for seq in seqs]
        return list(dict.fromkeys(number for row in rows for number in row))

    def can_swap_out(self, group):
        return len(self._distinct(group.get_unfinished_seqs())) <= self.cpu.num_free()

    def can_swap_in(self, group, num_lookahead_slots=0):
        if num_lookahead_slots:
            raise NotImplementedError
        swapped = sum(seq.status is SequenceStatus.SWAPPED for seq in group.get_seqs())
        return self._decide(len(self._distinct(group.get_unfinished_seqs())) + swapped)

    def swap_out(self, group):
        return self._move(group.get_seqs(SequenceStatus.RUNNING), self.gpu, self.cpu)

    def swap_in(self, group):
        return self._move(group.get_seqs(SequenceStatus.SWAPPED), self.cpu, self.gpu)

    def _move(self, seqs, source, target):
        numbers = self._distinct(seqs)
        if any(self.rows[seq.seq_id][0] is not source for seq in seqs):
            raise ValueError("it lies on the other device")
        self._insist_on(target, [source.contents[number] for number in numbers])
        pairs = [(number, target.take(source.contents[number], int(source.ends[number]))) for number in numbers]
        where = dict(pairs)
        target.owners[list(where.values())] -= 1
        for seq in seqs:
            row = self.rows[seq.seq_id][1]
            moved = np.array([where[number] for number in row.tolist()], dtype=np.int64)
            np.add.at(target.owners, moved, 1)
            for number in row:
                source.let_go(number)
            self.rows[seq.seq_id] = (target, moved)
        return pairs

    def access_all_blocks_in_seq(self, seq, now):
        pool, row = self.rows[seq.seq_id]
        if self.enable_caching:
            pool.stamps[row] = now

    def mark_blocks_as_computed(self, group):
        for seq in group.get_seqs() if self.enable_caching else []:
            pool, row = self.rows.get(seq.seq_id, (self.gpu, np.zeros(0, dtype=np.int64)))
            pool.computed[row[: seq.get_len() // self.block_size]] = True

    def get_common_computed_block_ids(self, seqs):
        rows = [self.rows[seq.seq_id][1][:-1] for seq in seqs if seq.seq_id in self.rows]
        if not self.enable_caching or not rows or len(rows) < len(seqs):
            return []
        side_by_side = np.array([row[: min(map(len, rows))] for row in rows])
        common = (side_by_side == side_by_side[0]).all(axis=0) & self.gpu.computed[side_by_side[0]]
        return side_by_side[0][: len(common) if common.all() else int(np.argmin(common))].tolist()
