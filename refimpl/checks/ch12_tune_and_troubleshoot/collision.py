"""12-collision: what a hash does not prove.

The account is a dictionary of whole contents; a theory is an index in which somebody believes something.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from refimpl.checks.ch12_tune_and_troubleshoot.probes import alike, named
from refimpl.checks.step import History, Log, Operation, Setup, Step, World, show
from refimpl.simulation.diagnosis import BlockIndex

FOUND = "what was added is found"
NOT_THERE = "what was never added is not found"
TOKENS = "a block with other tokens is not shared, whatever the hash says"
PREFIX = "the same tokens behind another prefix are another content"
BOTH = "two contents of one hash are both found, each in its own block"

BLOCKS = (0, 1, *range(1002, 1100))  # numbers, in the order in which they are filed; Python keeps small ones once
Tokens = tuple[int, ...]
Content = tuple["int | None", Tokens]


def _weak_hash(strength: int) -> Callable[[int | None, Tokens], int]:
    """A hash with so many values."""

    def weak_hash(prefix: int | None, token_ids: Tokens) -> int:
        return (sum(token_ids) + (0 if prefix is None else 1 + prefix)) % strength

    return weak_hash


class _Index:
    """An index in which somebody believes something; `entries` are (prefix, tokens, block) by hash."""

    def __init__(self, hash_function: Callable[[int | None, Tokens], int], belief: Callable[[Content, Content], bool]):
        self.hash_function, self.belief = hash_function, belief
        self.entries: dict[int, list[tuple[int | None, Tokens, int]]] = {}

    def add(self, prefix: int | None, token_ids: Tokens, block: int) -> None:
        self.entries.setdefault(self.hash_function(prefix, token_ids), []).append((prefix, token_ids, block))

    def find(self, prefix: int | None, token_ids: Tokens) -> int | None:
        for known_prefix, known_ids, block in self._candidates(self.hash_function(prefix, token_ids)):
            if self.belief((known_prefix, known_ids), (prefix, token_ids)):
                return block
        return None

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return self.entries.get(key, [])


class _NoZero(_Index):
    """One in which 0 is taken for nothing."""

    def find(self, prefix: int | None, token_ids: Tokens) -> int | None:
        return super().find(prefix, token_ids) or None


class _OneBucket(_Index):
    """One that looks among all entries, whatever their hash."""

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return [entry for entries in self.entries.values() for entry in entries]


class _LastFirst(_Index):
    """One in which the entry that came last is looked at first."""

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return super()._candidates(key)[::-1]


class _LastOnly(_Index):
    """One with room for one entry of a hash: the last."""

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return super()._candidates(key)[-1:]


class _FirstOnly(_Index):
    """One with room for one entry of a hash: the first."""

    def _candidates(self, key: int) -> list[tuple[int | None, Tokens, int]]:
        return super()._candidates(key)[:1]


def _ends(content: Content) -> tuple[int | None, int, int, int]:
    """The prefix, how many tokens there are, the first and the last of them."""
    prefix, tokens = content
    return prefix, len(tokens), tokens[0], tokens[-1]


def _in_one(content: Content) -> tuple[int, ...]:
    """The prefix in front of the tokens, as if it were one."""
    prefix, tokens = content
    return tokens if prefix is None else (prefix, *tokens)


Belief = Callable[[Content, Content], bool]  # known, asked for -> whether they pass for the same
BELIEFS: tuple[tuple[str, type[_Index], Belief], ...] = (
    *(("hash-believed", kind, lambda known, asked: True) for kind in (_Index, _LastFirst)),
    *(
        (name, kind, belief)
        for kind in (_Index, _LastFirst, _LastOnly, _FirstOnly)
        for name, belief in (
            ("tokens-not-compared", lambda known, asked: known[0] == asked[0]),
            ("prefix-not-compared", lambda known, asked: known[1] == asked[1]),
            ("number-of-tokens-compared", lambda known, asked: len(known[1]) == len(asked[1])),
            ("number-of-tokens-compared", lambda known, asked: (known[0], len(known[1])) == (asked[0], len(asked[1]))),
            ("order-lost", lambda known, asked: (known[0], sorted(known[1])) == (asked[0], sorted(asked[1]))),
            ("order-lost", lambda known, asked: sorted(known[1]) == sorted(asked[1])),
            ("some-tokens-compared", lambda known, asked: (known[0], known[1][0]) == (asked[0], asked[1][0])),
            ("some-tokens-compared", lambda known, asked: known[1][0] == asked[1][0]),
        )
    ),
    ("zero-is-a-block", _NoZero, lambda known, asked: known == asked),
    *(
        ("zero-is-a-block", kind, lambda known, asked: (known[0] or 0, known[1]) == (asked[0] or 0, asked[1]))
        for kind in (_Index, _OneBucket)
    ),
    ("some-tokens-compared", _Index, lambda known, asked: _ends(known) == _ends(asked)),
    *(
        ("prefix-for-a-token", kind, lambda known, asked: _in_one(known) == _in_one(asked))
        for kind in (_Index, _OneBucket)
    ),
    ("only-the-last-is-kept", _LastOnly, lambda known, asked: known == asked),
    ("only-the-first-is-kept", _FirstOnly, lambda known, asked: known == asked),
)


class _CollisionWorld(World):
    """An index over a weak hash, beside a dictionary of whole contents.

    Operations: ("add", key, before, tokens), a new block for these tokens behind the block of key `before`, which is
    "" for none; ("find", before, tokens). The setup's `hashes` is how many values the hash has.
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.hashes = setup["hashes"]
        self.block_of: dict[Hashable, int] = {}
        self.account: dict[Content, int] = {}  # content -> block
        self.has_found = False  # something, rightly; who finds nothing at all is right about what is not there
        self.index = log.call(
            f"index = BlockIndex(weak_hash)    # its values: 0 to {self.hashes - 1}", subject, _weak_hash(self.hashes)
        )

    def choices(self) -> Iterable[Operation]:
        return filter(self.possible, self._all_choices())

    def _all_choices(self) -> Iterator[Operation]:
        pieces = ((1, 6), (6, 1), (2, 5), (1, 2), (4, 3), (3,), (0, 3), (1, 5), (1,), (16,), (1, 4, 2), (1, 3, 2))
        befores = ["", *list(self.block_of)[-4:]]
        for before in befores:
            for piece in pieces:
                yield "add", len(self.block_of), before, piece
                yield "find", before, piece
        for prefix, tokens in list(self.account) * 3:
            before = "" if prefix is None else next(key for key, block in self.block_of.items() if block == prefix)
            yield "find", before, tokens

    def possible(self, operation: Operation) -> bool:
        verb, *arguments = operation
        before, tokens = arguments[-2:]
        if before != "" and before not in self.block_of:
            return False
        return verb == "find" or (
            arguments[0] not in self.block_of and self._content(before, tokens) not in self.account
        )

    def _content(self, before: Hashable, tokens: Tokens) -> Content:
        return (None if before == "" else self.block_of[before]), tokens

    def perform(self, operation: Operation) -> None:
        verb, *arguments = operation
        prefix, tokens = self._content(*arguments[-2:])
        if verb == "add":
            block = BLOCKS[len(self.account)]
            raises = (ValueError, "collision-refused") if self._others(prefix, tokens) else None
            line = f"index.add({prefix}, {tokens}, block={block})"
            self.log.call(line, self.index.add, *_fresh(prefix, tokens), block, raises=raises, block=block)
            self.block_of[arguments[0]] = self.account[prefix, tokens] = block
        else:
            self._find(prefix, tokens)

    def _others(self, prefix: int | None, tokens: Tokens) -> list[Content]:
        """Known contents with the hash of this one."""
        weak_hash = _weak_hash(self.hashes)
        wanted = weak_hash(prefix, tokens)
        return [known for known in self.account if known != (prefix, tokens) and weak_hash(*known) == wanted]

    def _find(self, prefix: int | None, tokens: Tokens) -> None:
        got = self.log.call(f"index.find({prefix}, {tokens})", self.index.find, *_fresh(prefix, tokens))
        wanted = self.account.get((prefix, tokens))
        others = self._others(prefix, tokens)
        right = got is None if wanted is None else alike(got, wanted)
        known = next((known for known, block in self.account.items() if alike(got, block)), None)
        thought = None if right else self._thought()
        if thought in SHOWN_BY_A_BLOCK and known is None or thought in SHOWN_BY_NONE and got is not None:
            thought = None  # it is so, and is shown by another case than this one
        but = f"it is {show(got)}"
        if known is not None and not right:
            but += f", which holds {list(known[1])} behind {_behind(known[0])}"
        evidence = {"prefix": _behind(prefix), "tokens": show(list(tokens)), "wanted": show(wanted), "got": show(got)}
        evidence["place"] = "in no block" if wanted is None else f"in block {wanted}"
        if known is not None:
            evidence |= {"known": show(list(known[1])), "behind": _behind(known[0])}
        self.has_found |= right and wanted is not None
        if right and not self.has_found:
            return
        name = self._property(wanted, tokens, others)
        self.log.hold(name, right, f"it should be {show(wanted)}", but, thought, **evidence)

    def _property(self, wanted: int | None, tokens: Tokens, others: list[Content]) -> str:
        if wanted is not None:
            return BOTH if others else FOUND
        if not others:
            return NOT_THERE
        return PREFIX if any(known[1] == tokens for known in others) else TOKENS

    def _thought(self) -> str | None:
        """The belief that explains what the learner's index finds after each of the probes."""

        def answers(make: Callable[..., Any]) -> list[Any]:
            found = []
            for hashes, added, asked in COLLISION_PROBES:
                index = make(_weak_hash(hashes))
                for block, content in enumerate(added):
                    index.add(*content, block)
                found += [_as_text(index.find(*content)) for content in asked]
            return found

        theories = ((name, answers(_believing(kind, belief))) for name, kind, belief in BELIEFS)
        return named(lambda: answers(self.subject), theories)


def _believing(kind: type[_Index], belief: Belief) -> Callable[..., _Index]:
    return lambda hash_function: kind(hash_function, belief)


def _as_text(block: Any) -> str:
    """A found block or none, such that 0 is no None."""
    return "none" if block is None else show(block)


def _fresh(prefix: int | None, tokens: Tokens) -> Content:
    """The same content in other objects, as two requests bring it."""
    return None if prefix is None else int(str(prefix)), tuple(map(int, tokens))


def _behind(prefix: int | None) -> str:
    return "nothing" if prefix is None else f"block {prefix}"


SHOWN_BY_NONE = ("only-the-last-is-kept", "only-the-first-is-kept")
SHOWN_BY_A_BLOCK = {name for name, _, _ in BELIEFS} - {*SHOWN_BY_NONE, "zero-is-a-block"}

_ADDED: tuple[Content, ...] = (
    (None, (1, 6)), (None, (2, 5)), (0, (3, 3)), (1, (3, 3)), (0, (4, 2)), (None, (3,)), (None, (6, 1)), (None, (1, 5)),
    (None, (1, 4, 2)),
)  # fmt: skip
_ASKED: tuple[Content, ...] = (
    *_ADDED, (2, (3, 3)), (None, (4, 2)), (0, (2, 4)), (None, (5, 2)), (None, (4, 3)), (1, (1, 6)), (None, (1, 2)),
    (4, (3,)), (None, (1, 3, 2)), (None, (0, 3, 3)),
)  # fmt: skip
COLLISION_PROBES = tuple((hashes, _ADDED, _ASKED) for hashes in (1, 3)) + ((1, _ADDED[:1], _ASKED), (2, (), _ASKED))


def _collision_history(hashes: int, *operations: Operation) -> History:
    return History.of({"hashes": hashes}, *operations)


STEP = Step(
    exercise_id="12-collision",
    title="do not believe the hash",
    points=2,
    subject="BlockIndex",
    writes=("add", "find"),
    needs=("__init__",),
    reference=(BlockIndex.add, BlockIndex.find),
    properties=(FOUND, NOT_THERE, TOKENS, PREFIX, BOTH),
    misconceptions={
        "hash-believed": "An equal hash is a hint and no proof: {tokens} behind {prefix} was asked for, and block "
        "{got} holds {known} behind {behind}, which is another user's text.",
        "tokens-not-compared": "The same place behind the same prefix says nothing of the tokens: {tokens} was "
        "asked for, and you found block {got}, which holds {known}.",
        "prefix-not-compared": "Keys and values depend on all that stands before: {tokens} behind {prefix} was "
        "asked for, and you found block {got}, which stands behind {behind}.",
        "number-of-tokens-compared": "As many tokens are not the same tokens: {tokens} was asked for, and you "
        "found block {got}, which holds {known}.",
        "some-tokens-compared": "Every token has to be the same and not only one or two: {tokens} was asked for, "
        "and you found block {got}, which holds {known}.",
        "prefix-for-a-token": "A prefix is the number of a block and no token: {tokens} behind {prefix} was asked for, "
        "and you found block {got}, which holds {known} behind {behind}.",
        "order-lost": "The same tokens in another order are another text: {tokens} was asked for, and you found "
        "block {got}, which holds {known}.",
        "only-the-last-is-kept": "Two contents may have one hash, and both are to be found: {tokens} behind "
        "{prefix} is in block {wanted}, and what came later with the same hash has taken its place.",
        "only-the-first-is-kept": "Two contents may have one hash, and both are to be found: {tokens} behind "
        "{prefix} is in block {wanted}, and what came earlier with the same hash has kept it out.",
        "zero-is-a-block": "0 is the number of a block like any other, and not nothing: {tokens} behind {prefix} "
        "was asked for, which is {place}, and yours found {got}; compare with `None`.",
        "collision-refused": "A collision is nobody's mistake and has to be lived with: file block {block} beside "
        "the other one of its hash; yours ended in {error}.",
    },
    world=_CollisionWorld,
    examples=(
        _collision_history(
            8, ("add", "a", "", (1, 7)), ("find", "", (1, 7)), ("find", "", (2, 6)), ("add", "b", "", (2, 6)),
            ("find", "", (2, 6)), ("find", "", (1, 7)),
        ),
        _collision_history(
            1, ("find", "", (1, 7)), ("add", "a", "", (1, 7)), ("find", "", (1, 7)), ("find", "a", (1, 7)),
        ),
        _collision_history(
            1, ("add", "a", "", (1, 7)), ("find", "", (1, 7)), ("find", "", (7, 1)), ("find", "", (1, 6)),
            ("find", "", (1,)), ("find", "", (17,)),
        ),
        _collision_history(1, ("add", "a", "", (1, 4, 2)), ("find", "", (1, 4, 2)), ("find", "", (1, 3, 2))),
        _collision_history(
            1, ("add", "a", "", (1, 7)), ("add", "b", "a", (2, 2)), ("find", "a", (2, 2)), ("find", "b", (2, 2)),
            ("find", "", (1, 7)), ("find", "a", (1, 7)),
        ),
        _collision_history(
            1, ("add", "a", "", (1, 7)), ("add", "b", "a", (3,)), ("find", "a", (3,)), ("find", "", (0, 3)),
        ),
        _collision_history(1000, ("add", "a", "", (1, 7)), ("find", "", (1, 7)), ("find", "", (1, 8))),
    ),
    setups=lambda rng: {"hashes": rng.choice((1, 1, 2, 3, 5, 1000))},
)  # fmt: skip
