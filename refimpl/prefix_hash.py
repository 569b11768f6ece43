"""What a block's content is called: one key for everything from the start of a sequence to the end of the block.

vLLM hashes a block's tokens together with the hash of the block before. A hash can collide, so here the pair itself,
(key of the block before, tokens of this block), is looked up and numbered: two blocks get the same key exactly when
their tokens are the same from position 0 on. Blocks that may still change get keys of another kind, each one of its
own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from collections.abc import Sequence as SequenceOf
from typing import TypeAlias

BlockHash: TypeAlias = Hashable
"""A block's key: an int for known content, an AnonymousKey for content that still changes. vLLM's `block_hash`."""

NO_PREFIX = 0  # stands for the key of the block before the first
SPARE_KEYS = 1024  # forgotten prefixes that may pile up before they are cleared out


class AnonymousKey:
    """The key of a block whose content nobody may share yet. Equal to itself only.

    >>> key = AnonymousKey()
    >>> key == key, key == AnonymousKey()
    (True, False)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "AnonymousKey()"


class PrefixKeys:
    """Numbers every distinct prefix that it is shown.

    Owns the numbering. Invariant: a key stands for one sequence of tokens as long as a block carries it, or carries
    one that was built on it.

    >>> keys = PrefixKeys()
    >>> first = keys.key(NO_PREFIX, (5, 6))
    >>> second = keys.key(first, (7, 8))
    >>> keys.of_tokens((5, 6, 7, 8), block_size=2) == [first, second]
    True
    >>> keys.of_tokens((9, 9, 7, 8), block_size=2)[1] == second
    False

    Source: vLLM 0.5.4, `vllm/sequence.py`, `Sequence.hash_of_block`; `hash_block_tokens` in today's vLLM.
    """

    __slots__ = ("_keys", "_last", "_limit")

    def __init__(self) -> None:
        self._keys: dict[tuple[BlockHash, tuple[Hashable, ...]], int] = {}  # (key of the prefix, tokens) -> key
        self._last = NO_PREFIX
        self._limit = SPARE_KEYS

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, prefix: BlockHash, token_ids: tuple[Hashable, ...]) -> int:
        """The key of a block of the tokens `token_ids` behind the prefix of key `prefix`."""
        key = self._keys.setdefault((prefix, token_ids), self._last + 1)
        if key > self._last:
            self._last = key
        return key

    def of_tokens(
        self, token_ids: SequenceOf[int], block_size: int, extra_keys: tuple[Hashable, ...] = ()
    ) -> list[int]:
        """The keys of all blocks of the sequence `token_ids`, logical block 0 first; the last one may be partly filled.

        `extra_keys` is whatever else the content depends on, such as an adapter: it is part of every block's key.
        """
        token_ids = tuple(token_ids)
        prefix = self.key(NO_PREFIX, (extra_keys,)) if extra_keys else NO_PREFIX  # a tuple is no token id
        keys = []
        for start in range(0, len(token_ids), block_size):
            prefix = self.key(prefix, token_ids[start : start + block_size])
            keys.append(prefix)
        return keys

    def has_many(self) -> bool:
        """Whether so many prefixes have piled up that it pays to look which are still in use."""
        return len(self._keys) >= self._limit

    def forget_all_but(self, in_use: Iterable[BlockHash]) -> None:
        """Keep the keys in use and those they are built on."""
        content_of = {key: content for content, key in self._keys.items()}
        kept = {}
        for key in in_use:
            while isinstance(key, int) and key in content_of:
                content = content_of.pop(key)
                kept[content] = key
                key = content[0]
        self._keys = kept
        self._limit = 4 * len(kept) + SPARE_KEYS
