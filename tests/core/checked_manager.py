"""A block manager that is compared with the model after every call, and a worker that computes what it is told.

`CheckedManager` has the manager's methods and can stand in its place, under a scheduler too. `CALLS` counts what was
asked of all of them, `EVENTS` what came of it.
"""

from collections import Counter

from refimpl import AllocStatus, BlockSpaceManager, SequenceStatus
from refimpl.prefix_hash import AnonymousKey
from tests.core.model import Model, Refused, ShadowCache

CALLS = Counter()  # method -> calls, over all managers
EVENTS = Counter()  # what happened on the way -> how often, over all managers
REFUSED = "refused"
NOTHING_PROMISED = ("", set(), 0)
DECISIONS = ("can_allocate", "can_append_slots", "can_swap_out", "can_swap_in", "get_common_computed_block_ids")


def ids(seqs):
    return [seq.seq_id for seq in seqs]


def tokens_of(seq):
    return tuple(seq.get_token_ids())


class CheckedManager:
    """A manager and the model, called together. An answer or a state in which they differ is an AssertionError."""

    def __init__(self, block_size, num_gpu_blocks, num_cpu_blocks, watermark, caching):
        sizes = (block_size, num_gpu_blocks, num_cpu_blocks)
        self.real = BlockSpaceManager(*sizes, watermark=watermark, enable_caching=caching)
        self.model = Model(*sizes, watermark, caching, EVENTS)
        self.caching = caching
        self.block_size = block_size
        self.seqs = {}  # seq_id -> sequence that has a table
        self.num_slots = {}  # seq_id -> its tokens that have a slot
        self.promised = NOTHING_PROMISED  # (action, the sequences it is for, blocks it was said to take)

    def __getattr__(self, name):
        return getattr(self.real, name)

    def both(self, name, real_args, model_args):
        CALLS[name] += 1
        before = self.state()
        try:
            expected = getattr(self.model, name)(*model_args)
        except Refused:
            expected = REFUSED
        try:
            answer, error = getattr(self.real, name)(*real_args), None
        except (ValueError, KeyError) as refusal:
            answer, error = REFUSED, refusal
        told = answer.name if isinstance(answer, AllocStatus) else answer
        assert told == expected, f"{name}: {told}, the model says {expected} ({error})"
        if error is not None or name in DECISIONS:
            assert self.state() == before, f"{name} changed something, and it was refused or only asked"
        self.check_agreement()
        if error is not None:
            EVENTS["refusal"] += 1
            raise error
        return answer

    def state(self):
        """All that a refused call and a decision must leave as it was."""
        real = self.real
        tables = {
            seq_id: [(id(b), b.ref_count, b.computed, b.last_accessed, b.block_hash) for b in table]
            for seq_id, table in real.block_tables.items()
        }
        pools = [
            (pool.get_num_free_blocks(), pool.get_block_hashes() if self.caching else list(map(id, pool.free_blocks)))
            for pool in (real.gpu_allocator, real.cpu_allocator)
        ]
        return tables, pools

    def check_agreement(self):
        """Tables, counts, flags, stamps and kinds of key are the model's; the books balance by themselves."""
        tables = {
            seq_id: [(block.device.name, block.block_number) for block in table]
            for seq_id, table in self.real.block_tables.items()
        }
        assert tables == self.model.tables
        owners = Counter(id(block) for table in self.real.block_tables.values() for block in table)
        held = {id(block): block for table in self.real.block_tables.values() for block in table}
        for block in held.values():
            assert block.ref_count == owners[id(block)], f"{block} stands in {owners[id(block)]} tables"
        for seq_id, table in tables.items():
            assert len(set(table)) == len(table), f"table of sequence {seq_id} repeats a block: {table}"
            assert len({device for device, _ in table}) <= 1, f"table of sequence {seq_id} mixes devices: {table}"
        for name, pool in (("GPU", self.real.gpu_allocator), ("CPU", self.real.cpu_allocator)):
            here = [block for block in held.values() if block.device.name == name]
            numbers = {block.block_number for block in here}
            assert len(numbers) == len(here), f"a {name} number stands for two blocks"
            assert numbers <= set(range(pool.get_num_total_blocks()))
            assert pool.get_num_free_blocks() + len(here) == pool.get_num_total_blocks()
            assert pool.get_num_free_blocks() == self.model.pools[name].num_free()
            if self.caching:
                self.check_content(pool, self.model.pools[name], here)
            else:
                assert [block.block_number for block in pool.free_blocks] == self.model.pools[name].pile

    def check_content(self, pool, expected, here):
        label_of = {}  # real key -> the model's
        for block in here:
            label = label_of.setdefault(block.block_hash, expected.label[block.block_number])
            assert label == expected.label[block.block_number], "one key for two contents"
            assert isinstance(block.block_hash, AnonymousKey) == self.model.is_unique(label)
            assert block.computed == (block.block_number in expected.computed)
            assert block.last_accessed == expected.stamp[block.block_number]
            assert block.num_hashed_tokens == expected.end[block.block_number]
            assert pool.contains_block(block.block_hash)
        assert len(set(label_of.values())) == len(here), "one content under two keys"
        unique = [isinstance(key, AnonymousKey) for key in pool.get_block_hashes()]
        assert sorted(unique) == sorted(map(self.model.is_unique, expected.label.values()))

    def check_sharing(self):
        """A block stands in two tables only for the same tokens; with caching, live full prefixes are held once."""
        tables = sorted(self.real.block_tables.items())
        for n, (a, table_a) in enumerate(tables):
            for b, table_b in tables[:n]:
                tokens_a = tokens_of(self.seqs[a])[: self.num_slots[a]]
                tokens_b = tokens_of(self.seqs[b])[: self.num_slots[b]]
                for i, (block_a, block_b) in enumerate(zip(table_a, table_b, strict=False)):
                    end = (i + 1) * self.block_size
                    known = min(end, len(tokens_a), len(tokens_b))
                    equal = tokens_a[:known] == tokens_b[:known]
                    assert equal or block_a is not block_b, f"sequences {a} and {b} share block {i}, not its tokens"
                    if self.caching and equal and known == end and block_a.device is block_b.device:
                        assert block_a is block_b, f"sequences {a} and {b} hold block {i} twice"

    def remember(self, seqs):
        for seq in seqs:
            self.seqs[seq.seq_id], self.num_slots[seq.seq_id] = seq, seq.get_len()

    def promise(self, action, seqs, most):
        """A decision said that `action` has room: it has to succeed, and to take `most` blocks (no more, if cached)."""
        self.promised = (action, set(seqs), most)

    def hold_promise(self, action, seqs, taken, error):
        promised, members, most = self.promised
        if action != promised or not seqs <= members:
            self.promised = NOTHING_PROMISED
            return
        assert error is None, f"{action} was refused, and the decision before said that it has room: {error}"
        exact = not self.caching and action != "append_slots"
        assert taken == most if exact else taken <= most, f"{action} took {taken} blocks, {most} were counted"
        self.promised = (promised, members - seqs, most)

    def act(self, action, seqs, real_args, model_args):
        """An action that may have been promised to `seqs`."""
        pool = self.real.cpu_allocator if action == "swap_out" else self.real.gpu_allocator
        free, error = pool.get_num_free_blocks(), None
        try:
            return self.both(action, real_args, model_args)
        except (ValueError, KeyError) as refusal:
            error = refusal
            raise
        finally:
            self.hold_promise(action, set(seqs), free - pool.get_num_free_blocks(), error)

    def can_allocate(self, group):
        waiting = group.get_seqs(SequenceStatus.WAITING)
        answer = self.both("can_allocate", (group,), ([(seq.seq_id, tokens_of(seq)) for seq in waiting],))
        if answer is AllocStatus.OK and not any(seq.seq_id in self.seqs for seq in waiting):
            self.promise("allocate", waiting, self.model.num_blocks_for(tokens_of(waiting[0])))
        return answer

    def allocate(self, group):
        waiting = group.get_seqs(SequenceStatus.WAITING)
        self.act("allocate", waiting, (group,), ([(seq.seq_id, tokens_of(seq)) for seq in waiting],))
        self.remember(waiting)
        self.check_sharing()

    def can_append_slots(self, group):
        running = group.get_seqs(SequenceStatus.RUNNING)
        answer = self.both("can_append_slots", (group,), (len(running),))
        if answer:
            self.promise("append_slots", running, 1)
        return answer

    def append_slots(self, seq):
        pairs = self.act("append_slots", [seq], (seq,), (seq.seq_id, tokens_of(seq)))
        self.remember([seq])
        self.check_sharing()
        return pairs

    def fork(self, parent, child):
        self.both("fork", (parent, child), (parent.seq_id, child.seq_id))
        if parent.seq_id in self.seqs:
            self.seqs[child.seq_id], self.num_slots[child.seq_id] = child, self.num_slots[parent.seq_id]
        self.check_sharing()

    def free(self, seq):
        self.both("free", (seq,), (seq.seq_id,))
        self.seqs.pop(seq.seq_id, None)

    def reset(self):
        self.both("reset", (), ())
        self.seqs.clear()

    def can_swap_out(self, group):
        answer = self.both("can_swap_out", (group,), (ids(group.get_unfinished_seqs()),))
        running = group.get_seqs(SequenceStatus.RUNNING)
        if answer:
            self.promise("swap_out", running, len(self.model.distinct(ids(running))))
        return answer

    def swap_out(self, group):
        running = group.get_seqs(SequenceStatus.RUNNING)
        pairs = self.act("swap_out", running, (group,), (ids(running),))
        self.check_sharing()
        return pairs

    def can_swap_in(self, group):
        swapped = group.get_seqs(SequenceStatus.SWAPPED)
        answer = self.both("can_swap_in", (group,), (ids(group.get_unfinished_seqs()), len(swapped)))
        if answer is AllocStatus.OK:
            self.promise("swap_in", swapped, len(self.model.distinct(ids(swapped))))
        return answer

    def swap_in(self, group):
        swapped = group.get_seqs(SequenceStatus.SWAPPED)
        pairs = self.act("swap_in", swapped, (group,), (ids(swapped),))
        self.check_sharing()
        if self.promised[0] == "swap_in":
            self.promise("append_slots", swapped, 1)
        return pairs

    def access_all_blocks_in_seq(self, seq, now):
        self.both("access_all_blocks_in_seq", (seq, now), (seq.seq_id, now))

    def mark_blocks_as_computed(self, group):
        lengths = {seq.seq_id: seq.get_len() for seq in group.get_seqs()}
        self.both("mark_blocks_as_computed", (group,), (lengths,))

    def get_common_computed_block_ids(self, seqs):
        return self.both("get_common_computed_block_ids", (seqs,), (ids(seqs),))


class Worker:
    """Computes over a shadow cache: one step is swap in, swap out, copy, compute, and every read is looked at."""

    def __init__(self, manager):
        self.manager = manager
        self.cache = ShadowCache(manager.block_size)
        self.num_computed = {}  # seq_id -> tokens whose keys and values are in the cache

    def table(self, seq):
        return [(block.device.name, block.block_number) for block in self.manager.block_tables[seq.seq_id]]

    def run(self, swap_in, swap_out, copies, prompts, decodes):
        """`prompts`: sequence -> leading tokens it need not compute; `decodes`: sequences that compute their newest.

        A copy may go to a block that others hold (its content was known). It brings that block's last slot along
        unwritten, and the sequence that copies writes it: so reads are looked at when all have written.
        """
        self.cache.move(swap_in, "CPU", "GPU")
        self.cache.move(swap_out, "GPU", "CPU")
        self.cache.move(copies, "GPU", "GPU")
        for seq, num_skipped in prompts.items():
            self.check(seq, num_skipped, "skips computing")
            EVENTS["prefix not computed again"] += num_skipped > 0
        for seq, start in (prompts | {seq: seq.get_len() - 1 for seq in decodes}).items():
            self.cache.write(self.table(seq), tokens_of(seq), start)
            self.num_computed[seq.seq_id] = seq.get_len()
        for seq_id, seq in self.manager.seqs.items():
            self.check(seq, self.num_computed[seq_id], "reads")

    def check(self, seq, length, verb):
        found, own = self.cache.read(self.table(seq), length), seq.get_token_ids()[:length]
        assert found == own, f"sequence {seq.seq_id} {verb} {found}, its tokens are {own}"

    def fork(self, parent, child):
        self.num_computed[child.seq_id] = self.num_computed[parent.seq_id]
