"""Tables are lists of numbers, a pool is a dict of owner counts, and a block object is made for who asks to see it.

Free numbers go out oldest first. With caching a block is found by the text it stands for, while somebody holds it.
"""

from collections import deque

from refimpl import AllocStatus, Device, SequenceStatus


class Pool:
    def __init__(self, device, num_blocks):
        self.device, self.num_blocks = device, num_blocks
        self.free_numbers = deque(range(num_blocks))
        self.owners = {}  # number -> how many tables hold it
        self.text_of = {}  # number -> the tokens it stands for, from position 0 on
        self.number_of = {}  # the other way round

    def lacking(self, texts):
        return sum(text not in self.number_of for text in texts)

    def take(self, text):
        number = self.number_of.get(text)
        if number is None:
            number = self.free_numbers.popleft()
            self.owners[number] = 0
            self.describe(number, text)
        self.owners[number] += 1
        return number

    def describe(self, number, text):
        self.number_of.pop(self.text_of.pop(number, None), None)
        if text is not None:
            self.text_of[number], self.number_of[text] = text, number

    def drop(self, number):
        self.owners[number] -= 1
        if not self.owners[number]:
            del self.owners[number]
            self.describe(number, None)
            self.free_numbers.append(number)

    def insist_on_room(self, texts):
        if self.lacking(texts) > len(self.free_numbers):
            raise ValueError(f"{len(self.free_numbers)} blocks are free on the {self.device.name}")


class View:
    def __init__(self, pool, number):
        self.device, self.block_number, self.ref_count = pool.device, number, pool.owners[number]


class BlockSpaceManager:
    def __init__(self, block_size, num_gpu_blocks, num_cpu_blocks, watermark=0.01, enable_caching=False):
        self.block_size, self.enable_caching = block_size, enable_caching
        self.watermark_blocks = int(watermark * num_gpu_blocks)
        self.gpu, self.cpu = Pool(Device.GPU, num_gpu_blocks), Pool(Device.CPU, num_cpu_blocks)
        self.pool_of = {}  # seq_id -> where its table lies
        self.tables = {}  # seq_id -> block numbers

    @property
    def block_tables(self):
        return {seq_id: [View(self.pool_of[seq_id], n) for n in table] for seq_id, table in self.tables.items()}

    def get_block_table(self, seq):
        return list(self.tables[seq.seq_id])

    def get_num_free_gpu_blocks(self):
        return len(self.gpu.free_numbers)

    def get_num_free_cpu_blocks(self):
        return len(self.cpu.free_numbers)

    def answer(self, required):
        if required > self.gpu.num_blocks - self.watermark_blocks:
            return AllocStatus.NEVER
        fits = required <= len(self.gpu.free_numbers) - self.watermark_blocks
        return AllocStatus.OK if fits else AllocStatus.LATER

    def waiting(self, group):
        seqs = group.get_seqs(SequenceStatus.WAITING)
        if not seqs or any(seq.seq_id in self.tables for seq in seqs):
            raise ValueError(f"nothing to allocate for {group.request_id}")
        return seqs

    def can_allocate(self, group):
        return self.answer(self.waiting(group)[0].n_blocks)

    def allocate(self, group):
        seqs = self.waiting(group)
        tokens = tuple(seqs[0].get_token_ids())
        ends = range(self.block_size, seqs[0].n_blocks * self.block_size + 1, self.block_size)
        texts = [tokens[:end] if self.enable_caching else None for end in ends]
        self.gpu.insist_on_room(texts)
        table = [self.gpu.take(text) for text in texts]
        self.tables[seqs[0].seq_id], self.pool_of[seqs[0].seq_id] = table, self.gpu
        for seq in seqs[1:]:
            self.fork(seqs[0], seq)

    def fork(self, parent, child):
        if child.seq_id in self.tables:
            raise ValueError(f"sequence {child.seq_id} has a table")
        if parent.seq_id in self.tables:
            pool = self.pool_of[child.seq_id] = self.pool_of[parent.seq_id]
            self.tables[child.seq_id] = self.get_block_table(parent)
            for number in self.tables[child.seq_id]:
                pool.owners[number] += 1

    def free(self, seq):
        for number in self.tables.pop(seq.seq_id, []):
            self.pool_of[seq.seq_id].drop(number)

    def can_append_slots(self, group):
        return len(group.get_seqs(SequenceStatus.RUNNING)) <= len(self.gpu.free_numbers)

    def append_slots(self, seq):
        table = self.tables[seq.seq_id]
        missing = seq.n_blocks - len(table)
        if missing > 1 or self.pool_of[seq.seq_id] is self.cpu:
            raise ValueError(f"sequence {seq.seq_id} cannot take a slot")
        full = self.enable_caching and seq.get_len() % self.block_size == 0
        text = tuple(seq.get_token_ids()) if full else None
        last = table[-1]
        alone = self.gpu.owners[last] == 1
        if not missing and alone and text not in self.gpu.number_of:
            self.gpu.describe(last, text)
            return []
        if missing or not alone:
            self.gpu.insist_on_room([text])
        table.append(self.gpu.take(text))
        if missing:
            return []
        table.remove(last)
        self.gpu.drop(last)
        return [] if alone else [(last, table[-1])]

    def leaving(self, group):
        return {number for seq in group.get_unfinished_seqs() for number in self.tables[seq.seq_id]}

    def can_swap_out(self, group):
        return len(self.leaving(group)) <= len(self.cpu.free_numbers)

    def can_swap_in(self, group, num_lookahead_slots=0):
        return self.answer(len(self.leaving(group)) + len(group.get_seqs(SequenceStatus.SWAPPED)))

    def swap_out(self, group):
        return self.move(group.get_seqs(SequenceStatus.RUNNING), self.gpu, self.cpu)

    def swap_in(self, group):
        return self.move(group.get_seqs(SequenceStatus.SWAPPED), self.cpu, self.gpu)

    def move(self, seqs, source, destination):
        if any(self.pool_of[seq.seq_id] is not source for seq in seqs):
            raise ValueError(f"not all of them are on the {source.device.name}")
        numbers = list(dict.fromkeys(number for seq in seqs for number in self.tables[seq.seq_id]))
        texts = [source.text_of.get(number) for number in numbers]
        destination.insist_on_room(texts)
        target = {number: destination.take(text) for number, text in zip(numbers, texts, strict=True)}
        for number in target.values():
            destination.owners[number] -= 1
        for seq in seqs:
            for number in self.tables[seq.seq_id]:
                destination.owners[target[number]] += 1
                source.drop(number)
            self.tables[seq.seq_id] = [target[number] for number in self.tables[seq.seq_id]]
            self.pool_of[seq.seq_id] = destination
        return list(target.items())
