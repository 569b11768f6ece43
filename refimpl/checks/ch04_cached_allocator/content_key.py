"""04-content-key: a block is named by its content.

The account knows for which tokens a key was given; of a key's value it knows nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from refimpl.checks.step import History, Log, Names, Operation, Setup, Step, World, counted, equal, show
from refimpl.checks.thoughts import asked
from refimpl.prefix_hash import NO_PREFIX, PrefixKeys

Tokens = tuple[int, ...]
Extra = tuple[Hashable, ...]

A_KEY_EACH = "every block has a key, the partial last one too"
SAME_KEY = "equal tokens from position 0 on have equal keys"
OTHER_KEY = "different tokens from position 0 on have different keys"
EXTRA_KEYS = "extra keys are part of every key"
TOKENS_KEPT = "the tokens that were passed stay as they were"

MERSENNE = 2**61 - 1  # Python hashes whole numbers modulo this, so it hashes like 0
PIECES: tuple[Tokens, ...] = ((1, 2, 3, 4), (9, 9, 9, 9), (1,), (2, 1), (0,), (257,), (12, 3), (1, 23))
MOST_TOKENS = 12
EXTRAS: tuple[Extra, ...] = (
    *((), (0,), (MERSENNE,), (1,), ("1",), (1, 1)),
    *(("a", "bc"), ("ab", "c"), ("a", "bc", "d"), ("a", "bc", "e")),
)


@dataclass(frozen=True, slots=True)
class _Keyed:
    """A block that has been given a key: the tokens up to its end, and where it was met."""

    tokens: Tokens
    extra: Extra
    index: int
    call: Tokens  # all tokens of the call
    form: type  # list or tuple: what they came as
    size: int  # of a block

    @property
    def content(self) -> tuple[Tokens, Extra]:
        """What the key has to stand for."""
        return self.tokens, self.extra

    @property
    def own(self) -> Tokens:
        """The tokens in the block itself."""
        return self.tokens[self.index * self.size :]

    @property
    def before(self) -> Tokens:
        """The tokens in front of the block."""
        return self.tokens[: self.index * self.size]


class _KeysWorld(World):
    """Sequences of tokens, their keys compared with all that were given before."""

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.block_size, self.names = setup["block_size"], Names()
        self.seen: list[Tokens] = []
        self.key_of: dict[tuple[Tokens, Extra], tuple[Any, _Keyed]] = {}
        self.given_for: dict[Any, _Keyed] = {}  # the learner's key -> the block that has it
        self.keys = log.call("keys = PrefixKeys()", subject)

    def choices(self) -> Iterable[Operation]:
        new = self.names.new_key()
        starts = {(), *self.seen[-4:]}
        longer = {start + piece for start in starts for piece in PIECES if len(start + piece) <= MOST_TOKENS}
        shorter = {tokens[:-1] for tokens in self.seen[-4:]}
        for tokens in sorted(longer | shorter):
            yield "of_tokens", new, tokens, ()
        for tokens in self.seen[-3:]:
            yield from (("of_tokens", new, tokens, extra) for extra in ((), ("adapter",), (1,), (1, 2), (2, 1)))

    def possible(self, operation: Operation) -> bool:
        return operation[1] not in self.names

    def _of_tokens(self, key: Hashable, tokens: Tokens, extra: Extra) -> None:
        name = self.names.add(key)
        form = list if len(self.seen) % 2 == 0 else tuple
        passed = form(tokens)
        extra_text = f", extra_keys={extra}" if extra else ""
        line = f"{name} = keys.of_tokens({passed}, block_size={self.block_size}{extra_text})"
        got = self.log.call(line, self.keys.of_tokens, passed, self.block_size, *([extra] if extra else []))
        keys = self._check_count(got, tokens, extra)
        self.log.expect(TOKENS_KEPT, f"the {form.__name__} of tokens", passed, form(tokens))
        for index, block_key in enumerate(keys):
            block = _Keyed(tokens[: (index + 1) * self.block_size], extra, index, tokens, form, self.block_size)
            self._check_key(block_key, block)
        self.seen.append(tokens)

    def _check_count(self, got: Any, tokens: Tokens, extra: Extra) -> list[Any]:
        """The keys as a list, one a block."""
        blocks = len(range(0, len(tokens), self.block_size))
        should = f"it should return a list of {counted(blocks, 'key')}"
        listed = isinstance(got, Sequence) and not isinstance(got, str | bytes) or hasattr(got, "tolist")
        thought = "generator-for-a-list" if isinstance(got, Iterator) else None
        thought = "keys-not-returned" if got is None else thought
        self.log.hold(A_KEY_EACH, listed, should, f"it returned {show(got)}", thought, got=show(got))
        keys = list(got)
        thought = None
        if len(keys) != blocks:
            full = tokens[: len(tokens) // self.block_size * self.block_size]
            if len(keys) < blocks and full != tokens and equal(self._keys_of(full, extra), keys):
                thought = "partial-block-left-out"
            elif extra and equal(self._keys_of((*extra, *tokens)), keys):
                thought = "extra-keys-pass-for-tokens"
        evidence = {"tokens": list(tokens), "size": self.block_size, **_joined(tokens, extra)}
        evidence |= {"blocks": counted(blocks, "block"), "keys": counted(len(keys), "key")}
        self.log.hold(A_KEY_EACH, len(keys) == blocks, should, f"it returned {len(keys)}", thought, **evidence)
        return keys

    def _keys_of(self, tokens: tuple[Hashable, ...], extra: Extra = ()) -> list[Any] | None:
        """What the learner's code says of these tokens, asked where something has gone wrong; None if it raises."""
        more = [extra] if extra else []
        keys: list[Any] | None = asked(lambda: [*self.keys.of_tokens(list(tokens), self.block_size, *more)])
        return keys

    def _check_key(self, key: Any, block: _Keyed) -> None:
        self.log.hold(A_KEY_EACH, _is_hashable(key), "a key should be hashable", f"it is {show(key)}")
        if block.content in self.key_of:
            self._check_same(key, block, *self.key_of[block.content])
            return
        clash = self.given_for.get(key)
        about_extra = block.extra if clash is None else clash.extra != block.extra
        self.log.hold(
            EXTRA_KEYS if about_extra else OTHER_KEY,
            clash is None,
            f"block {block.index} should have a new key",
            f"it has that of {list(clash.tokens)}" if clash else "",
            self._clash(clash, block) if clash else None,
            **(_clash_evidence(clash, block) if clash else {}),
        )
        self.key_of[block.content] = key, block
        self.given_for[key] = block

    def _check_same(self, key: Any, block: _Keyed, known_key: Any, known: _Keyed) -> None:
        same = equal(key, known_key)
        self.log.hold(
            SAME_KEY,
            same,
            f"block {block.index} should have the key that {list(block.tokens)} had before",
            "it has another",
            None if same else self._two_keys(block, known_key, known),
            tokens=list(block.tokens),
            one=list(known.call),
            other=list(block.call),
            number=counted(len(block.tokens), "token"),
        )

    def _two_keys(self, block: _Keyed, known_key: Any, known: _Keyed) -> str:
        """The misconception behind two keys for one content."""
        if not self._same_again(known, known_key, known.form):
            return "every-call-anew"
        if not self._same_again(known, known_key, block.form):
            return "list-is-not-tuple"
        return "every-call-anew" if known.call == block.call else "what-follows-counts"

    def _same_again(self, known: _Keyed, known_key: Any, form: type) -> bool:
        """Whether the call, its tokens in this form, gives the block its key once more."""
        extra = [known.extra] if known.extra else []
        again = asked(lambda: self.keys.of_tokens(form(known.call), known.size, *extra)[known.index])
        return equal(again, known_key)

    def _clash(self, one: _Keyed, other: _Keyed) -> str | None:
        """The misconception behind one key for two contents."""
        if one.extra != other.extra:
            if one.tokens == other.tokens:
                in_one_block = one.index and self._first_differs(one, other)
                if in_one_block:
                    return "extra-keys-in-one-block-only"
                return "extra-keys-look-alike" if one.extra and other.extra else "extra-keys-forgotten"
            return "extra-keys-pass-for-tokens" if (*one.extra, *one.tokens) == (*other.extra, *other.tokens) else None
        if one.own == other.own and one.before != other.before:
            if not one.before and equal(self.key_of[other.before, other.extra][0], NO_PREFIX):
                return "number-of-no-prefix"
            one_back = other.index == one.index > 1 and one.before[-one.size :] == other.before[-one.size :]
            return "one-block-back" if one_back else "block-alone"
        return _look_alike(one, other)

    def _first_differs(self, one: _Keyed, other: _Keyed) -> bool:
        """Whether the first blocks of two sequences with equal later keys have keys of their own."""
        firsts = [(block.tokens[: self.block_size], block.extra) for block in (one, other)]
        keys = [self.key_of[first][0] for first in firsts if first in self.key_of]
        return len(keys) == 2 and not equal(*keys)


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _joined(tokens: Tokens, extra: Extra) -> dict[str, Any]:
    """What a block with extra keys looks like when those pass for tokens."""
    return {"bare": list(tokens), "extras": extra, "joined": [*extra, *tokens]}


def _clash_evidence(one: _Keyed, other: _Keyed) -> dict[str, Any]:
    """What the sentences about one key for two contents may speak of."""
    more_extra = max(one, other, key=lambda block: len(block.extra))
    evidence = {"one": list(one.tokens), "other": list(other.tokens), "number": other.index}
    evidence |= {"extra": show(one.extra), "other_extra": show(other.extra), "before": list(other.before)}
    evidence["modulo"] = _modulo(one.tokens, other.tokens)
    return evidence | _joined(more_extra.tokens, more_extra.extra)


def _modulo(one: Tokens, other: Tokens) -> int | None:
    """How many values a number has that is too narrow to tell the tokens apart."""
    sizes = (2**bits for bits in (32, 16, 8))
    return next((n for n in sizes if [token % n for token in one] == [token % n for token in other]), None)


def _look_alike(one: _Keyed, other: _Keyed) -> str:
    """In what two texts that differ in their last block, or as a whole, are the same."""
    shorter, longer = sorted((one.tokens, other.tokens), key=len)
    if one.before == other.before and len(shorter) == len(longer) and shorter[:-1] == longer[:-1]:
        if {shorter[-1], longer[-1]} == {0, MERSENNE}:
            return "hash-alone"
        return "cut-to-few-bits" if _modulo(shorter, longer) else "last-token-left-out"
    if longer == shorter + (0,) * (len(longer) - len(shorter)):
        return "padding-is-a-token"
    if "".join(map(str, shorter)) == "".join(map(str, longer)):
        return "joined-as-text"
    if sorted(shorter) == sorted(longer):
        return "order-lost"
    return "cut-to-few-bits" if _modulo(shorter, longer) else "number-given-twice"


def _keys_history(block_size: int, *sequences: Tokens | tuple[Tokens, Extra]) -> History:
    operations: list[Operation] = []
    for number, sequence in enumerate(sequences):
        tokens, extra = sequence if sequence and isinstance(sequence[0], tuple) else (sequence, ())
        operations.append(("of_tokens", number, tokens, extra))
    return History({"block_size": block_size}, tuple(operations))


STEP = Step(
    exercise_id="04-content-key",
    title="name a block by its content",
    points=2,
    subject="PrefixKeys",
    writes=("key", "of_tokens"),
    through=("of_tokens",),
    reference=(PrefixKeys.key, PrefixKeys.of_tokens),
    properties=(A_KEY_EACH, SAME_KEY, OTHER_KEY, EXTRA_KEYS, TOKENS_KEPT),
    misconceptions={
        "keys-not-returned": "The caller wants a list of keys, one a block: yours returned None.",
        "block-alone": "The keys and values in a block depend on every token before it: {one} and {other} end in "
        "equal blocks behind different ones, and yours gave both the same key.",
        "one-block-back": "One block back is not far enough, since {one} and {other} differ before that: chain the "
        "key of the block before, which stands for everything up to there.",
        "number-of-no-prefix": "The number that says no prefix is taken: yours made it the key of {before}, so the "
        "block behind {before} looks like the first block of a text.",
        "partial-block-left-out": "A partial last block has content too, the tokens that it holds: {tokens} is "
        "{blocks} of {size}, and yours returned {keys}.",
        "padding-is-a-token": "An empty slot is no token, and token 0 is one: {one} and {other} are different "
        "texts, and yours gave both the same key.",
        "cut-to-few-bits": "Token ids are whole numbers and as large as a vocabulary: {one} and {other} are the same "
        "modulo {modulo:,} only, and yours gave both the same key.",
        "joined-as-text": "Written one after the other, {one} and {other} are the same digits: compare token ids "
        "as numbers, one by one.",
        "order-lost": "The order of tokens is part of a text: yours gave {one} and {other} the same key.",
        "hash-alone": "A hash is no evidence, for {one} and {other} have the same one in Python: look the content "
        "itself up, so that what collides is compared.",
        "last-token-left-out": "A key covers its block to the last token: {one} and {other} differ there, and "
        "yours gave both the same key.",
        "number-given-twice": "A key stands for one content only: yours gave the same one to {one} and to "
        "{other}, and whoever comes second would read the first one's cache.",
        "every-call-anew": "The same tokens get the same key whenever they come, or nothing is ever found again: "
        "yours gave {tokens} another key the second time.",
        "what-follows-counts": "A key looks back and never ahead: {one} and {other} begin with the same {number}, "
        "and yours gave the block that ends there two keys.",
        "extra-keys-forgotten": "What else content depends on is part of its key: yours gave {other} the same key "
        "with extra keys {extra} and with {other_extra}.",
        "extra-keys-in-one-block-only": "Extra keys count in every block and not just in one: yours gave block "
        "{number} of {other} the same key with extra keys {extra} and with {other_extra}.",
        "extra-keys-look-alike": "Extra keys are compared as they are, every one and in their order: {extra} and "
        "{other_extra} are not equal, and yours gave {other} the same key with both.",
        "generator-for-a-list": "The keys are counted and read more than once, and a generator is used up after one "
        "reading: return a list, while yours returned {got}.",
        "list-is-not-tuple": "The tokens count and not what holds them: {tokens} came as a list and as a tuple, and "
        "yours gave the block that ends there two keys.",
        "extra-keys-pass-for-tokens": "Extra keys are no tokens: yours takes {bare} with extra keys {extras} for "
        "the tokens {joined}.",
    },
    world=_KeysWorld,
    examples=(
        _keys_history(4, (1, 2, 3, 4, 9, 9, 9, 9), (5, 6, 7, 8, 9, 9, 9, 9), (1, 2, 3, 4, 9, 9)),
        _keys_history(2, (1, 2, 5, 6, 9, 9), (3, 4, 5, 6, 9, 9)),
        _keys_history(4, (1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6)),
        _keys_history(4, (1, 2, 3, 4, 9), (5, 6, 7, 8, 9)),
        _keys_history(4, (1, 2, 3), (1, 2, 3, 0)),
        _keys_history(4, (1, 2, 3, 4), (1, 2, 3, 7)),
        _keys_history(4, (65,), (321,), (65601,)),
        _keys_history(4, (12, 3), (1, 23)),
        _keys_history(4, (1, 2, 3), (3, 2, 1)),
        _keys_history(4, (0,), (MERSENNE,)),
        _keys_history(2, ((1, 2, 3), ()), ((1, 2, 3), ("adapter",)), ((1, 2, 3), ("other adapter",))),
        _keys_history(2, ((5, 6, 7, 8), ()), ((7, 8), (5, 6))),
        _keys_history(2, ((1, 2, 3), (1, 2)), ((1, 2, 3), (2, 1))),
        _keys_history(4, *(((1, 2, 3), extra) for extra in EXTRAS)),
        _keys_history(4, (), (9, 9, 9, 9, 9, 9, 9, 9)),
        _keys_history(2, (1, 2, 3, 4, 1, 2)),  # a number may stand for "no prefix" and for a prefix
        _keys_history(1, (1, 2, 3, 4, 1)),
    ),
    setups=lambda rng: {"block_size": rng.choice((1, 2, 4))},
)
