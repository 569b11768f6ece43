"""What must hold of a block manager, kept beside the learner's: who holds which block, on which device, for what text.

The account knows no block numbers, only which tables hold the same block. Nothing is stored that can be counted: a
block's owners are the tables that list it, and the free blocks are those that no table lists. No code is shared with
the reference.
"""

from __future__ import annotations

from refimpl.block import Device
from refimpl.block_manager import AllocStatus

Tokens = tuple[int, ...]


class Block:
    """A block in the account, compared by identity. `content` is the text it may be shared for, from position 0 on."""

    __slots__ = ("device", "content")

    def __init__(self, device: Device, content: Tokens | None) -> None:
        self.device, self.content = device, content


Pair = tuple[Block, Block]  # source, destination


class Account:
    """Tables by seq_id. A call that has to be refused returns None and changes nothing.

    With `caching` equal contents share a block.
    """

    def __init__(
        self, block_size: int, num_gpu_blocks: int, num_cpu_blocks: int, watermark_blocks: int, caching: bool
    ) -> None:
        self.block_size, self.watermark_blocks, self.caching = block_size, watermark_blocks, caching
        self.total = {Device.GPU: num_gpu_blocks, Device.CPU: num_cpu_blocks}
        self.tables: dict[int, list[Block]] = {}

    def owners(self, block: Block) -> int:
        """How many tables hold the block."""
        return sum(block in table for table in self.tables.values())

    def free(self, device: Device) -> int:
        """Blocks that no table holds."""
        held = {block for table in self.tables.values() for block in table if block.device is device}
        return self.total[device] - len(held)

    def required(self, num_tokens: int) -> int:
        """Blocks for so many tokens, counted one block at a time."""
        return len(range(0, num_tokens, self.block_size))

    def distinct(self, seq_ids: list[int]) -> list[Block]:
        """The blocks in these sequences' tables, each once, first seen first."""
        found: list[Block] = []
        for seq_id in seq_ids:
            found += [block for block in self.tables.get(seq_id, []) if block not in found]
        return found

    def answer(self, required: int) -> AllocStatus:
        """Whether so many GPU blocks can be had and the watermark stay free: never, now, or later."""
        if required + self.watermark_blocks > self.total[Device.GPU]:
            return AllocStatus.NEVER
        fits = required + self.watermark_blocks <= self.free(Device.GPU)
        return AllocStatus.OK if fits else AllocStatus.LATER

    def allocate(self, seq_ids: list[int], prompt: Tokens) -> list[Block] | None:
        """One set of blocks, and a table for each sequence."""
        ends = [(i + 1) * self.block_size for i in range(self.required(len(prompt)))]
        contents = [prompt[:end] if self.caching else None for end in ends]
        if self._to_take(Device.GPU, contents) > self.free(Device.GPU):
            return None
        table = [self._take(Device.GPU, content) for content in contents]
        for seq_id in seq_ids:
            self.tables[seq_id] = list(table)
        return table

    def append(self, seq_id: int, tokens: Tokens) -> list[Pair] | None:
        """Room for the newest of the tokens; what has to be copied first."""
        table = self.tables[seq_id]
        missing = self.required(len(tokens)) - len(table)
        full = self.caching and len(tokens) % self.block_size == 0
        content = tokens if full else None
        alone = missing == 0 and self.owners(table[-1]) == 1
        if missing > 1 or (not alone and self._to_take(Device.GPU, [content]) > self.free(Device.GPU)):
            return None
        if missing == 1:
            table.append(self._take(Device.GPU, content))
            return []
        last = table[-1]
        if not alone:
            table[-1] = self._take(Device.GPU, content)
            return [(last, table[-1])]
        if full:  # the block of this text, if there is one, or this one: the account cannot tell their numbers apart
            table[-1] = self._take(Device.GPU, content)
        last.content = None
        return []

    def fork(self, parent: int, child: int) -> None:
        """The child holds what its parent holds; nothing when that is nothing."""
        if parent in self.tables:
            self.tables[child] = list(self.tables[parent])

    def let_go(self, seq_id: int) -> None:
        """The sequence's table goes, if it has one."""
        self.tables.pop(seq_id, None)

    def swap(self, seq_ids: list[int], device: Device) -> list[Pair] | None:
        """The tables' counterparts on the other device, shared as they were; a pair for each distinct block."""
        blocks = self.distinct(seq_ids)
        if self._to_take(device, [block.content for block in blocks]) > self.free(device):
            return None
        target = {block: self._take(device, block.content) for block in blocks}
        for seq_id in seq_ids:
            self.tables[seq_id] = [target[block] for block in self.tables[seq_id]]
        return list(target.items())

    def _live(self, device: Device, content: Tokens | None) -> Block | None:
        blocks = (block for table in self.tables.values() for block in table if block.device is device)
        return None if content is None else next((block for block in blocks if block.content == content), None)

    def _to_take(self, device: Device, contents: list[Tokens | None]) -> int:
        return sum(self._live(device, content) is None for content in contents)

    def _take(self, device: Device, content: Tokens | None) -> Block:
        return self._live(device, content) or Block(device, content)
