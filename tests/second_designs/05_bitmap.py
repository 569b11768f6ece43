"""Free blocks are the bits of one integer, smallest first; owners are counted in an array, tables hold numbers.

A block is a view that is made when somebody looks at it. Contents are whole texts, from the first token on.
"""

from array import array
from decimal import Decimal

from refimpl import AllocStatus, Device, SequenceStatus


def num_watermark_blocks(watermark, num_gpu_blocks):
    if not (watermark >= 0 and Decimal(watermark).is_finite()):
        raise ValueError("no such share")
    return int(Decimal(watermark * num_gpu_blocks).to_integral_value("ROUND_DOWN"))


class View:
    def __init__(self, owners, number):
        self.owners, self.block_number, self.device = owners, number, Device.GPU

    @property
    def ref_count(self):
        return self.owners[self.block_number]


class BlockSpaceManager:
    def __init__(self, block_size, num_gpu_blocks, num_cpu_blocks, watermark=0.01, enable_caching=False):
        self.block_size, self.size, self.cpu_size = block_size, num_gpu_blocks, num_cpu_blocks
        self.reserve = num_watermark_blocks(watermark, num_gpu_blocks)
        self.caching = enable_caching
        self.free_bits = (1 << num_gpu_blocks) - 1
        self.owners = array("i", [0] * num_gpu_blocks)
        self.texts = [None] * num_gpu_blocks  # number -> the text it holds, also when nobody holds it any more
        self.freed_at = [0] * num_gpu_blocks
        self.clock = 0
        self.computed = set()
        self.numbers = {}  # seq_id -> tuple of numbers

    @property
    def block_tables(self):
        return {seq_id: [View(self.owners, n) for n in numbers] for seq_id, numbers in self.numbers.items()}

    def get_block_table(self, seq):
        return list(self.numbers[seq.seq_id])

    def get_num_free_gpu_blocks(self):
        return self.free_bits.bit_count()

    def get_num_free_cpu_blocks(self):
        return self.cpu_size

    def can_allocate(self, group):
        seq = self._waiting(group)[0]
        left_of = [
            blocks - len(self._texts_of(seq)) - self.reserve for blocks in (self.size, self.free_bits.bit_count())
        ]
        if min(left_of) >= 0:
            return AllocStatus.OK
        return AllocStatus.LATER if left_of[0] >= 0 else AllocStatus.NEVER

    def allocate(self, group):
        waiting = self._waiting(group)
        if not self.numbers.keys().isdisjoint(seq.seq_id for seq in waiting):
            raise ValueError("it is in already")
        texts = self._texts_of(waiting[0])
        missing = [text for text in texts if not self.caching or self._holder(text) is None]
        if len(missing) > self.get_num_free_gpu_blocks():
            raise ValueError("too little room")
        numbers = tuple(self._take(text, len(waiting)) for text in texts)
        self.numbers.update(dict.fromkeys((seq.seq_id for seq in waiting), numbers))

    def append_slots(self, seq):
        numbers = self.numbers[seq.seq_id]
        if len(numbers) * self.block_size < seq.get_len():
            self.numbers[seq.seq_id] = (*numbers, self._take(None, 1))
        elif self.owners[numbers[-1]] > 1:
            copy = self._take(None, 1)
            self.owners[numbers[-1]] -= 1
            self.numbers[seq.seq_id] = (*numbers[:-1], copy)
            return [(numbers[-1], copy)]
        return []

    def free(self, seq):
        for number in self.numbers.pop(seq.seq_id, ()):
            self.owners[number] -= 1
            if not self.owners[number]:
                self.free_bits |= 1 << number
                self.clock += 1
                self.freed_at[number] = self.clock

    def mark_blocks_as_computed(self, group):
        for seq in group.get_seqs():
            self.computed.update(self.numbers.get(seq.seq_id, ())[: seq.get_len() // self.block_size])

    def get_common_computed_block_ids(self, seqs):
        found = []
        for ids in zip(*[self.numbers[seq.seq_id][:-1] for seq in seqs], strict=False):
            if len(set(ids)) > 1 or ids[0] not in self.computed:
                break
            found.append(ids[0])
        return found

    def _waiting(self, group):
        waiting = [seq for seq in group.get_seqs() if seq.status is SequenceStatus.WAITING]
        if not waiting:
            raise ValueError("nobody waits")
        return waiting

    def _texts_of(self, seq):
        tokens = tuple(seq.get_token_ids())
        return [tokens[: start + self.block_size] for start in range(0, len(tokens), self.block_size)]

    def _holder(self, text):
        return next((n for n, held in enumerate(self.texts) if held == text and self.owners[n]), None)

    def _take(self, text, owners):
        number = self._number_for(text if self.caching else None)
        self.owners[number] += owners
        self.free_bits &= ~(1 << number)
        return number

    def _number_for(self, text):
        if text is not None and text in self.texts:
            return self.texts.index(text)
        free = [number for number in range(self.size) if self.free_bits >> number & 1]
        unused = [number for number in free if self.texts[number] is None]
        number = unused[0] if unused else max(free, key=lambda n: (len(self.texts[n]), -self.freed_at[n]))
        self.texts[number] = text
        self.computed.discard(number)
        return number
