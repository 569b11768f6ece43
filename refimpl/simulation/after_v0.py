"""What came after V0, in small: V1's pool and manager, V0's manager with V1's admission, and a radix tree.

Each class is one later system's idea and nothing else, so that it can be read beside what this course built. No
scheduler and no engine here uses them. Names are those of vLLM's V1 engine, `vllm/v1/core/`; the manager's answers are
held to a recording of vLLM 0.32.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from refimpl.block import num_required_blocks
from refimpl.block_manager import AllocStatus, BlockSpaceManager
from refimpl.prefix_hash import PrefixKeys
from refimpl.sequence import SequenceGroup


class KVCacheBlock:
    """A block's metadata. Its neighbours in the free queue are fields of its own, so queueing makes no object.

    block_hash: the key of its content, None unless it is full and can be found.
    """

    __slots__ = ("block_id", "ref_cnt", "block_hash", "prev_free_block", "next_free_block")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: int | None = None
        self.prev_free_block = self.next_free_block = self


class FreeKVCacheBlockQueue:
    """The free blocks in the order in which they are given up: a doubly linked list.

    Owns the order. Invariant: a block is in it exactly when nobody holds it. Whatever it is asked, it looks at no more
    blocks than it moves.

    >>> blocks = [KVCacheBlock(number) for number in range(4)]
    >>> queue = FreeKVCacheBlockQueue(blocks)
    >>> queue.remove(blocks[2]); queue.popleft().block_id; queue.append(blocks[2])
    0
    >>> [block.block_id for block in queue]
    [1, 3, 2]

    Source: vLLM 0.32.0, `vllm/v1/core/kv_cache_utils.py`, `FreeKVCacheBlockQueue`.
    """

    __slots__ = ("num_free_blocks", "_end")

    def __init__(self, blocks: Iterable[KVCacheBlock]) -> None:
        self.num_free_blocks = 0
        self._end = KVCacheBlock(-1)  # stands before the first block and behind the last
        for block in blocks:
            self.append(block)

    def __iter__(self) -> Iterator[KVCacheBlock]:
        block = self._end.next_free_block
        while block is not self._end:
            yield block
            block = block.next_free_block

    def popleft(self) -> KVCacheBlock:
        """Take the first block. ValueError when there is none."""
        block = self._end.next_free_block
        if block is self._end:
            raise ValueError("the queue is empty: no block is free")
        self.remove(block)
        return block

    def remove(self, block: KVCacheBlock) -> None:
        """Take a block out, wherever it stands."""
        block.prev_free_block.next_free_block = block.next_free_block
        block.next_free_block.prev_free_block = block.prev_free_block
        self.num_free_blocks -= 1

    def append(self, block: KVCacheBlock) -> None:
        """Put a block at the back: it is given up last."""
        self._insert(block, before=self._end)

    def prepend_n(self, blocks: Sequence[KVCacheBlock]) -> None:
        """Put blocks at the front, in this order: they are given up next."""
        first = self._end.next_free_block
        for block in blocks:
            self._insert(block, before=first)

    def _insert(self, block: KVCacheBlock, before: KVCacheBlock) -> None:
        block.prev_free_block, block.next_free_block = before.prev_free_block, before
        before.prev_free_block.next_free_block = block
        before.prev_free_block = block
        self.num_free_blocks += 1


class KVCacheManager:
    """V1's manager for one kind of attention, with prefix caching: one question that is also the answer.

    Owns the blocks 0 to num_gpu_blocks - 1 and a table for each request. Invariants: a table only grows at its end;
    a block's ref_cnt is the number of tables that hold it. There is no second device, no fork, no copy, no status.

    Args:
        block_size: tokens a block.
        num_gpu_blocks: how many blocks there are. (vLLM keeps block 0 for itself.)

    >>> manager = KVCacheManager(block_size=4, num_gpu_blocks=4)
    >>> [block.block_id for block in manager.allocate_slots("a", list(range(9)))]
    [0, 1, 2]
    >>> hits = manager.get_computed_blocks(list(range(12)))
    >>> [block.block_id for block in hits], manager.allocate_slots("b", list(range(12)), hits)[0].block_id
    ([0, 1], 3)
    >>> manager.allocate_slots("c", [7]) is None
    True

    Source: vLLM 0.32.0, `vllm/v1/core/kv_cache_manager.py`, `KVCacheManager`, and `block_pool.py`, `BlockPool`.
    """

    def __init__(self, block_size: int, num_gpu_blocks: int) -> None:
        self.block_size = block_size
        self.blocks = [KVCacheBlock(block_id) for block_id in range(num_gpu_blocks)]
        self.free_block_queue = FreeKVCacheBlockQueue(self.blocks)
        self.req_to_blocks: dict[str, list[KVCacheBlock]] = {}  # request_id -> block table
        self.cached_block_hash_to_block: dict[int, dict[int, KVCacheBlock]] = {}  # key -> block_id -> block
        self._keys = PrefixKeys()

    def get_computed_blocks(self, token_ids: Sequence[int]) -> list[KVCacheBlock]:
        """The full blocks from the first token on that need not be computed; one token is always left."""
        hits = []
        for block_hash in self._block_hashes(token_ids[:-1]):
            if block_hash not in self.cached_block_hash_to_block:
                break
            hits.append(next(iter(self.cached_block_hash_to_block[block_hash].values())))
        return hits

    def get_num_blocks_to_take(self, request_id: str, num_tokens: int, hits: Sequence[KVCacheBlock] = ()) -> int:
        """Blocks that leave the free queue for so many tokens: new ones, and those hits that nobody holds."""
        held = len(self.req_to_blocks.get(request_id, ())) + len(hits)
        new = max(num_required_blocks(num_tokens, self.block_size) - held, 0)
        return new + sum(block.ref_cnt == 0 for block in hits)

    def allocate_slots(
        self, request_id: str, token_ids: Sequence[int], hits: Sequence[KVCacheBlock] = ()
    ) -> list[KVCacheBlock] | None:
        """Blocks for these tokens, which are all of the request's so far, whether new ones came or it goes on.

        Args:
            request_id: whose.
            token_ids: all tokens that will have keys and values after this step.
            hits: what `get_computed_blocks` found, when the request comes in.

        Returns:
            The new blocks; None, and nothing changed, when there are too few.
        """
        if self.get_num_blocks_to_take(request_id, len(token_ids), hits) > self.free_block_queue.num_free_blocks:
            return None
        block_table = self.req_to_blocks.setdefault(request_id, [])
        for block in hits:
            self._touch(block)
        block_table += hits
        missing = num_required_blocks(len(token_ids), self.block_size) - len(block_table)
        new_blocks = [self._new_block() for _ in range(missing)]
        block_table += new_blocks
        self._cache_full_blocks(block_table, token_ids)
        return new_blocks

    def free(self, request_id: str) -> None:
        """The request lets go of its blocks, tail first. Without a table: nothing."""
        nobodys = []
        for block in reversed(self.req_to_blocks.pop(request_id, [])):
            block.ref_cnt -= 1
            if block.ref_cnt == 0 and block.block_hash is None:
                nobodys.append(block)
            elif block.ref_cnt == 0:
                self.free_block_queue.append(block)
        self.free_block_queue.prepend_n(nobodys)  # nobody can ask for what is in them

    def get_block_ids(self, request_id: str) -> list[int]:
        """The request's block numbers, logical block 0 first."""
        return [block.block_id for block in self.req_to_blocks[request_id]]

    def _block_hashes(self, token_ids: Sequence[int]) -> list[int]:
        """The keys of the full blocks of these tokens."""
        num_full = len(token_ids) // self.block_size
        return self._keys.of_tokens(token_ids[: num_full * self.block_size], self.block_size)

    def _touch(self, block: KVCacheBlock) -> None:
        """One table more holds the block."""
        if block.ref_cnt == 0:
            self.free_block_queue.remove(block)
        block.ref_cnt += 1

    def _new_block(self) -> KVCacheBlock:
        """The first of the free queue, its content forgotten."""
        block = self.free_block_queue.popleft()
        block.ref_cnt = 1
        if block.block_hash is not None:
            same = self.cached_block_hash_to_block[block.block_hash]
            del same[block.block_id]
            if not same:
                del self.cached_block_hash_to_block[block.block_hash]
            block.block_hash = None
        return block

    def _cache_full_blocks(self, block_table: Sequence[KVCacheBlock], token_ids: Sequence[int]) -> None:
        """Make the table's full blocks addressable, even where a block with the same content exists."""
        for block, block_hash in zip(block_table, self._block_hashes(token_ids), strict=False):
            if block.block_hash is None:
                block.block_hash = block_hash
                self.cached_block_hash_to_block.setdefault(block_hash, {})[block.block_id] = block


class HitsSubtracted(BlockSpaceManager):
    """V0's manager with one answer changed: admission asks for the blocks that the prompt really takes.

    That is what `allocate` has always taken: new blocks, and hits that nobody holds. NEVER stays V0's, and so does the
    watermark.
    """

    def can_allocate(self, group: SequenceGroup) -> AllocStatus:
        """Whether the prompt's missing blocks fit, with the watermark left free."""
        status = super().can_allocate(group)
        if status is AllocStatus.LATER:
            block_hashes = self._block_hashes(self._waiting_seqs(group)[0])
            to_take = self.gpu_allocator.get_num_blocks_to_take(block_hashes)
            if self.get_num_free_gpu_blocks() - to_take >= self.watermark_blocks:
                return AllocStatus.OK
        return status


class RadixTree:
    """Texts by their tokens: what several have in common is kept once, and a match may end at any token.

    Owns the tree. Invariant: no two edges that leave a node begin with the same token.

    >>> tree = RadixTree()
    >>> tree.insert([1, 2, 3, 4]); tree.insert([1, 2, 9])
    >>> tree.match([1, 2, 3, 7]), tree.num_tokens()
    (3, 5)
    >>> tree.lines()
    ['2 tokens', '  2 tokens', '  1 token']

    Source: SGLang 0.5.23, `python/sglang/srt/mem_cache/radix_cache.py`, `RadixCache`; SGLang paper, section 3.
    """

    __slots__ = ("tokens", "children")

    def __init__(self, tokens: tuple[int, ...] = ()) -> None:
        self.tokens = tokens  # on the edge that leads here
        self.children: dict[int, RadixTree] = {}  # first token of the edge -> node

    def match(self, token_ids: Sequence[int]) -> int:
        """How many tokens, from the first on, are in the tree."""
        node, matched = self, 0
        while matched < len(token_ids) and token_ids[matched] in node.children:
            node = node.children[token_ids[matched]]
            common = _num_common(node.tokens, token_ids[matched:])
            matched += common
            if common < len(node.tokens):
                break
        return matched

    def insert(self, token_ids: Sequence[int]) -> None:
        """Put a text in; an edge that it leaves half-way is split there."""
        node, rest = self, tuple(token_ids)
        while rest and rest[0] in node.children:
            child = node.children[rest[0]]
            common = _num_common(child.tokens, rest)
            if common < len(child.tokens):
                child = child._split(node, common)
            node, rest = child, rest[common:]
        if rest:
            node.children[rest[0]] = RadixTree(rest)

    def num_tokens(self) -> int:
        """Tokens kept, each once."""
        return len(self.tokens) + sum(child.num_tokens() for child in self.children.values())

    def lines(self, indent: str = "") -> list[str]:
        """The tree as text: a line for each edge, what it branches into below it."""
        found = []
        for child in self.children.values():
            found.append(f"{indent}{len(child.tokens)} token{'s' * (len(child.tokens) != 1)}")
            found += child.lines(indent + "  ")
        return found

    def _split(self, parent: RadixTree, num_tokens: int) -> RadixTree:
        """The node that now stands between `parent` and this one, so many tokens down the edge."""
        upper = RadixTree(self.tokens[:num_tokens])
        parent.children[self.tokens[0]] = upper
        self.tokens = self.tokens[num_tokens:]
        upper.children[self.tokens[0]] = self
        return upper


def _num_common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with in common."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return min(len(one), len(other))
