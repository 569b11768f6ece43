"""11-prefill: what has to be computed.

The account writes down an entry for each sequence of a scheduled group; a theory writes it down otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from refimpl.checks.engine_world import EngineWorld, prompt_of, sizes
from refimpl.checks.step import History, Log, Operation, Setup, Step, counted, show
from refimpl.checks.thoughts import Theories
from refimpl.scheduler import SequenceGroupMetadata
from refimpl.sequence import Sequence, SequenceStatus
from refimpl.serving.plain_engine import Engine

ONE_EACH = "there is an entry for each sequence, in their order"
TOKENS = "its tokens are those that the cache does not hold yet, all of them"
POSITIONS = "its positions are those that the tokens have in the sequence"
SLOTS = "its slots are where the block table puts these positions"
TABLE = "its block table is the sequence's, whole"
GIVEN_KEPT = "what was given stays as it was"

Entry = tuple[list[int], list[int], list[int], list[int]]  # token ids, positions, slots, block table


@dataclass(frozen=True)
class _Case:
    """One scheduled group."""

    is_prompt: bool
    seqs: list[Sequence]
    tables: list[list[int]]
    num_cached: int  # blocks
    block_size: int

    @property
    def data(self) -> SequenceGroupMetadata:
        return SequenceGroupMetadata(
            request_id="a",
            is_prompt=self.is_prompt,
            seq_data={seq.seq_id: seq for seq in self.seqs},
            block_tables={seq.seq_id: list(table) for seq, table in zip(self.seqs, self.tables, strict=True)},
            computed_block_nums=self.tables[0][: self.num_cached],
            token_chunk_size=self.seqs[0].get_len() if self.is_prompt else 1,
        )

    def __str__(self) -> str:
        seq, kind = self.seqs[0], "prompt" if self.is_prompt else "decode"
        words = [f"num_tokens={seq.get_len()}"]
        words += [f"num_outputs={seq.get_output_len()}"] * (seq.get_output_len() > 0)
        tables = f"block_table={self.tables[0]}" if len(self.tables) == 1 else f"block_tables={self.tables}"
        words += [tables] + [f"computed_block_nums={self.tables[0][: self.num_cached]}"] * (self.num_cached > 0)
        return f"{kind}({', '.join(words)})"

    def entries(
        self,
        start: Callable[[_Case, Sequence], int] | None = None,
        *,
        stop: Callable[[Sequence], int] = Sequence.get_len,
        shift: Callable[[int], int] = lambda start: 0,
        slots_shifted: bool = True,
        slot: Callable[[list[int], int, int], int] | None = None,
        table: Callable[[_Case, list[int]], list[int]] = lambda case, table: table,
        first_table: bool = False,
        first_only: bool = False,
        cached_outputs: bool = False,
    ) -> list[Entry] | None:
        """An entry for each sequence; without arguments what is right, with them what a thought makes of it."""
        found = []
        for seq, own_table in zip(self.seqs, self.tables, strict=True):
            block_table = self.tables[0] if first_table else own_table
            begin = (start or _Case.start)(self, seq)
            held = list(range(begin, stop(seq)))
            positions = [position + shift(begin) for position in held]
            try:
                slots = [
                    (slot or _slot)(block_table, position, self.block_size)
                    for position in (positions if slots_shifted else held)
                ]
            except IndexError:
                return None
            tokens = seq.get_token_ids()[begin : stop(seq)]
            if cached_outputs and self.is_prompt:
                tokens = seq.prompt_token_ids[begin:] + seq.output_token_ids
            found.append((tokens, positions, slots, table(self, block_table)))
        return found[:1] if first_only else found

    def start(self, seq: Sequence) -> int:
        """The first position that has to be computed."""
        return self.num_cached * self.block_size if self.is_prompt else seq.get_len() - 1


def _slot(block_table: list[int], position: int, block_size: int) -> int:
    block, offset = divmod(position, block_size)
    return block_table[block] * block_size + offset


def _in_prompts(start: Callable[[_Case, Sequence], int]) -> Callable[[_Case, Sequence], int]:
    return lambda case, seq: start(case, seq) if case.is_prompt else case.start(seq)


def _in_decodes(start: Callable[[_Case, Sequence], int]) -> Callable[[_Case, Sequence], int]:
    return lambda case, seq: case.start(seq) if case.is_prompt else start(case, seq)


Theory = Callable[[_Case], list[Entry] | None]
THEORIES: tuple[tuple[str, Theory], ...] = (
    ("cached-computed-again", lambda case: case.entries(_in_prompts(lambda case, seq: 0))),
    ("cached-computed-again", lambda case: case.entries(lambda case, seq: 0)),
    (
        "cached-computed-again",
        lambda case: case.entries(_in_prompts(lambda case, seq: min(case.start(seq), seq.get_prompt_len()))),
    ),
    ("cached-computed-again", lambda case: case.entries(cached_outputs=True)),
    ("positions-from-zero", lambda case: case.entries(shift=lambda start: -start)),
    ("positions-from-zero", lambda case: case.entries(shift=lambda start: -start, slots_shifted=False)),
    ("positions-from-zero", lambda case: case.entries(shift=lambda start: -start if case.is_prompt else 0)),
    (
        "positions-from-zero",
        lambda case: case.entries(shift=lambda start: -start if case.is_prompt else 0, slots_shifted=False),
    ),
    ("blocks-taken-for-tokens", lambda case: case.entries(_in_prompts(lambda case, seq: case.num_cached))),
    (
        "one-block-too-many-skipped",
        lambda case: case.entries(_in_prompts(lambda case, seq: (case.num_cached + 1) * case.block_size)),
    ),
    (
        "one-block-too-many-skipped",
        lambda case: case.entries(
            _in_prompts(lambda case, seq: (case.num_cached + (case.num_cached > 0)) * case.block_size)
        ),
    ),
    (
        "last-cached-block-not-believed",
        lambda case: case.entries(_in_prompts(lambda case, seq: max(case.num_cached - 1, 0) * case.block_size)),
    ),
    (
        "outputs-forgotten",
        lambda case: case.entries(
            stop=lambda seq: seq.get_prompt_len() if case.is_prompt else seq.get_len(),
        ),
    ),
    ("last-token-only", lambda case: case.entries(_in_prompts(lambda case, seq: seq.get_len() - 1))),
    ("decode-computes-all", lambda case: case.entries(_in_decodes(lambda case, seq: 0))),
    (
        "decode-begins-behind-the-blocks",
        lambda case: case.entries(lambda case, seq: case.num_cached * case.block_size),
    ),
    (
        "newest-position-off-by-one",
        lambda case: case.entries(shift=lambda start: 0 if case.is_prompt else 1, slots_shifted=False),
    ),
    ("newest-position-off-by-one", lambda case: case.entries(shift=lambda start: 0 if case.is_prompt else 1)),
    ("logical-for-physical", lambda case: case.entries(slot=lambda table, position, block_size: position)),
    (
        "block-number-for-slot",
        lambda case: case.entries(slot=lambda table, position, block_size: table[position // block_size]),
    ),
    (
        "offset-alone",
        lambda case: case.entries(
            slot=lambda table, position, block_size: table[position // block_size] + position % block_size
        ),
    ),
    ("first-sequence-only", lambda case: case.entries(first_only=True)),
    ("first-sequence-only", lambda case: case.entries(first_only=case.is_prompt)),
    ("one-table-for-all", lambda case: case.entries(first_table=True)),
    (
        "table-cut",
        lambda case: case.entries(table=lambda case, table: table[case.num_cached :] if case.is_prompt else table),
    ),
    ("table-cut", lambda case: case.entries(table=lambda case, table: table[case.num_cached :])),
)


def _prepare_history(block_size: int, *operations: Operation) -> History:
    return History.of(sizes(block_size, 8), *operations)


EXAMPLES = (  # kind, num_tokens, num_outputs, num_cached, num_seqs, shuffle
    _prepare_history(4, ("prepare", 0, 6, 0, 0, 1, 1), ("prepare", 0, 10, 0, 2, 1, 2), ("prepare", 1, 11, 1, 2, 1, 3)),
    _prepare_history(4, ("prepare", 0, 11, 3, 1, 1, 4)),
    _prepare_history(4, ("prepare", 0, 7, 3, 0, 1, 4)),
    _prepare_history(4, ("prepare", 0, 8, 0, 1, 1, 5)),
    _prepare_history(4, ("prepare", 0, 13, 0, 1, 1, 5)),
    _prepare_history(4, ("prepare", 1, 6, 2, 0, 2, 6)),
    _prepare_history(4, ("prepare", 1, 9, 2, 0, 1, 6)),
    _prepare_history(4, ("prepare", 1, 10, 2, 1, 1, 6)),
    _prepare_history(4, ("prepare", 0, 3, 0, 0, 1, 7)),
    _prepare_history(4, ("prepare", 0, 11, 6, 2, 1, 9)),
    _prepare_history(4, ("prepare", 0, 6, 0, 0, 2, 6)),
    _prepare_history(1, ("prepare", 0, 3, 0, 1, 1, 8), ("prepare", 1, 4, 1, 1, 3, 8)),
)


class _PrepareWorld(EngineWorld):
    """Groups as a scheduler hands them over, one at a time.

    ("prepare", kind, num_tokens, num_outputs, num_cached, num_seqs, shuffle): kind 0 is a prompt and 1 a decode;
    num_tokens are all tokens, outputs included; `shuffle` chooses the block numbers.
    """

    lost = (ONE_EACH, TOKENS)

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.suspects = Theories(THEORIES)

    def _words(self, gpu: int, cpu: int) -> str:
        return f"blocks of {counted(self.block_size, 'token')}"

    def choices(self) -> Iterable[Operation]:
        lengths = sorted({1, 2, self.block_size, self.block_size + 1, 2 * self.block_size + 1, 3 * self.block_size})
        for num_tokens in lengths:
            for num_cached in range((num_tokens - 1) // self.block_size + 1):
                shuffle = 7 * num_tokens + num_cached
                yield "prepare", 0, num_tokens, num_tokens % 2 * (num_tokens > 1), num_cached, 1, shuffle
                if num_tokens > 1:
                    num_seqs = 1 + num_cached % 2 + num_tokens % 2
                    yield "prepare", 1, num_tokens, 1 + num_tokens // 3, num_cached, num_seqs, shuffle

    def _prepare(
        self, kind: int, num_tokens: int, num_outputs: int, num_cached: int, num_seqs: int, shuffle: int
    ) -> None:
        case = self._case(kind == 0, num_tokens, num_outputs, num_cached, num_seqs, shuffle)
        right, data = case.entries() or [], case.data
        self.suspects.ask(case)
        too_far = (IndexError, "newest-position-off-by-one") if kind == 1 else None
        got = self.log.call(f"engine.prepare({case})", self.engine.prepare, data, raises=too_far, **self._facts(case))
        entries = _entries(got)
        fault = None if entries == right else self._fault(entries)
        facts = self._facts(case)
        is_list = entries is not None
        missing = "nothing-returned" if got is None else None
        should = f"it should return a list of NewTokens, {num_seqs} in all"
        right_number = is_list and len(entries or []) == num_seqs
        self.log.hold(ONE_EACH, right_number, should, f"it is {show(got)}", missing or fault, **facts)
        for i, (wanted, entry) in enumerate(zip(right, entries or [], strict=True)):
            which = f" of sequence {i}" if num_seqs > 1 else ""
            self.log.expect(TOKENS, f"token_ids{which}", entry[0], wanted[0], fault, **facts)
            self.log.expect(POSITIONS, f"positions{which}", entry[1], wanted[1], fault, **facts)
            self.log.expect(SLOTS, f"slots{which}", entry[2], wanted[2], fault, **facts)
            self.log.expect(TABLE, f"block_table{which}", entry[3], wanted[3], fault, **facts)
        self._check_kept(case, data)
        self.suspects.hear(entries)

    def _case(
        self, is_prompt: bool, num_tokens: int, num_outputs: int, num_cached: int, num_seqs: int, shuffle: int
    ) -> _Case:
        num_blocks = -(-num_tokens // self.block_size)
        numbers = random.Random(shuffle).sample(range(1, 30), num_blocks + num_seqs)
        shared, last = numbers[: num_blocks - 1], numbers[num_blocks - 1 :]
        seqs = []
        for i in range(num_seqs):
            seq = Sequence(3 + 2 * i, prompt_of(num_tokens - num_outputs, 0), self.block_size)
            for k in range(num_outputs):
                seq.append_token_id(100 * (i + 1) + k)
            seq.status = SequenceStatus.RUNNING
            seqs.append(seq)
        return _Case(is_prompt, seqs, [[*shared, last[i]] for i in range(num_seqs)], num_cached, self.block_size)

    def _facts(self, case: _Case) -> dict[str, Any]:
        seq = case.seqs[0]
        return {
            "length": seq.get_len(),
            "newest": seq.get_len() - 1,
            "start": case.start(seq),
            "blocks": counted(case.num_cached, "cached block"),
            "cached": counted(case.num_cached * case.block_size, "token"),
            "outputs": counted(seq.get_output_len(), "output token"),
            "prompt": seq.get_prompt_len(),
            "num_seqs": len(case.seqs),
            "block_size": case.block_size,
        }

    def _check_kept(self, case: _Case, data: SequenceGroupMetadata) -> None:
        for seq, table in zip(case.seqs, case.tables, strict=True):
            self.log.expect(GIVEN_KEPT, "the block table that was given", data.block_tables[seq.seq_id], table)
        outputs = [len(case.seqs), case.seqs[0].get_len(), case.tables[0][: case.num_cached]]
        seqs = list(data.seq_data.values())
        self.log.expect(GIVEN_KEPT, "what was given", [len(seqs), seqs[0].get_len(), data.computed_block_nums], outputs)

    def _fault(self, entries: list[Entry] | None) -> str | None:
        """The one thought that explains this answer, those before it, and those in the examples."""
        self.suspects.hear(entries)
        if self.replaying:
            return None
        for example in EXAMPLES:
            self.suspects.left &= self.replayed(example)[0].suspects.left
        return self.suspects.name


def _entries(got: Any) -> list[Entry] | None:
    """What a learner's list of entries says, as plain lists; None where it is no such list."""
    try:
        return [(_ints(new.token_ids), _ints(new.positions), _ints(new.slots), _ints(new.block_table)) for new in got]
    except Exception:  # noqa: BLE001  (whatever is raised on the way, it is no such list)
        return None


def _ints(numbers: Any) -> list[int]:
    return [number if type(number) is int else number.__index__() for number in numbers]


def _block_sizes(rng: random.Random) -> Setup:
    return sizes(rng.choice((1, 2, 3, 4)), 8)


STEP = Step(
    exercise_id="11-prefill",
    title="what has to be computed",
    points=3,
    subject="Engine",
    writes=("prepare",),
    reference=(Engine.prepare,),
    properties=(ONE_EACH, TOKENS, POSITIONS, SLOTS, TABLE, GIVEN_KEPT),
    misconceptions={
        "nothing-returned": "What has to be computed is handed on, a `NewTokens` for each sequence in a list: "
        "yours returned None.",
        "cached-computed-again": "What the cache holds need not be computed again: {blocks} hold the first "
        "{cached}, so the prompt's new tokens begin at position {start}.",
        "positions-from-zero": "A token keeps its position, whatever was left out before it: the first new token "
        "here stands at position {start}, and the model would take yours for the beginning of a text.",
        "blocks-taken-for-tokens": "`computed_block_nums` counts blocks, and positions count tokens: {blocks} of "
        "{block_size} tokens hold {cached}, so computing begins at position {start}.",
        "one-block-too-many-skipped": "Only what is in `computed_block_nums` has been computed: here that is "
        "{cached}, so the new tokens begin at position {start}, and yours leave some to nobody.",
        "last-cached-block-not-believed": "The block manager has left out the last block of the table already, so "
        "that something is left to compute: all of {blocks} may be skipped, up to position {start}.",
        "outputs-forgotten": "A request that comes back from a recompute has lost the keys and values of its "
        "answer, too: {outputs} stand behind the prompt of {prompt}, and have to be computed with it.",
        "last-token-only": "A prompt's keys and values are all still missing, behind what is cached: compute the "
        "tokens from position {start} to {newest}, and not the last one alone.",
        "decode-computes-all": "Decoding computes one token: everything before the newest, which stands at "
        "position {newest}, is in the cache.",
        "decode-begins-behind-the-blocks": "`computed_block_nums` says what a prompt may skip. A sequence that "
        "decodes has everything in the cache but its newest token, at position {newest}.",
        "newest-position-off-by-one": "The length counts the newest token already, so of {length} tokens the "
        "newest stands at position {newest}.",
        "logical-for-physical": "Where a token lies is for the block table to say: take the physical block from it "
        "and not the place in the sequence, or all sequences write into the same slots.",
        "block-number-for-slot": "A slot is one token's place and a block has {block_size} of them: the block's "
        "number times the block size, and the offset inside the block on top.",
        "offset-alone": "Blocks lie {block_size} slots apart, so the block's number has to be multiplied by the "
        "block size before the offset is added.",
        "first-sequence-only": "All sequences of the group run: {num_seqs} of them have a newest token here, and "
        "each needs an entry of its own.",
        "one-table-for-all": "Sequences that have grown apart have block tables of their own: look each one up "
        "under its seq_id in `data.block_tables`.",
        "table-cut": "The new tokens read everything before them, cached blocks as well: the block table is handed "
        "on whole, and only tokens, positions and slots begin at {start}.",
    },
    world=_PrepareWorld,
    examples=EXAMPLES,
    setups=_block_sizes,
)
