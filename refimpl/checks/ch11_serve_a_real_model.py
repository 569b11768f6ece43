"""Chapter 11: an engine, from what a sequence has to compute to the answers of many requests.

No model runs here. A worker keeps notes in place of keys and values (`engine_account.NotingWorker`), and a request's
answer is known beforehand from the request alone; a real scheduler over tiny pools makes room by recompute and by swap
meanwhile. What an engine gets wrong in between shows in the tokens, and what it did in the step in which it went wrong
tells the thought.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from refimpl.checks.engine_account import (
    EOS,
    Decided,
    Idle,
    alone,
    notes,
)
from refimpl.checks.engine_world import EngineWorld, random_sizes, sizes
from refimpl.checks.step import History, Log, Operation, Setup, Step, counted, show
from refimpl.scheduler import SequenceGroupMetadata
from refimpl.sequence import SamplingParams, Sequence, SequenceGroup, SequenceStatus
from refimpl.serving.plain_engine import Engine

MOST_REQUESTS = 5  # of a random history


def _request_words(num_tokens: int, text: int, params: SamplingParams) -> tuple[str, str]:
    """A prompt and what is asked of it, as the learner reads them."""
    asked = [f"n={params.n}"] * (params.n > 1) + [f"max_tokens={params.max_tokens}"]
    asked += ["ignore_eos=True"] * params.ignore_eos
    return f"prompt({num_tokens}{f', text={text}' * bool(text)})", f"SamplingParams({', '.join(asked)})"


# 11-prefill: what has to be computed.

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
    ("one-table-for-all", lambda case: case.entries(first_table=True)),
    (
        "table-cut",
        lambda case: case.entries(table=lambda case, table: table[case.num_cached :] if case.is_prompt else table),
    ),
    ("table-cut", lambda case: case.entries(table=lambda case, table: table[case.num_cached :])),
)


class _PrepareWorld(EngineWorld):
    """Groups as a scheduler hands them over, one at a time.

    ("prepare", kind, num_tokens, num_outputs, num_cached, num_seqs, shuffle): kind 0 is a prompt and 1 a decode;
    num_tokens are all tokens, outputs included; `shuffle` chooses the block numbers.
    """

    examples: tuple[History, ...] = ()

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.subject = subject
        self.left = set(range(len(THEORIES)))  # those that every answer so far bears out
        self.replaying = False

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

    def possible(self, operation: Operation) -> bool:
        return True

    def _prepare(
        self, kind: int, num_tokens: int, num_outputs: int, num_cached: int, num_seqs: int, shuffle: int
    ) -> None:
        case = self._case(kind == 0, num_tokens, num_outputs, num_cached, num_seqs, shuffle)
        right, data = case.entries() or [], case.data
        self.said = {i: THEORIES[i][1](case) for i in self.left}
        too_far = (IndexError, "newest-position-off-by-one") if kind == 1 else None
        got = self.log.call(f"engine.prepare({case})", self.engine.prepare, data, raises=too_far, **self._facts(case))
        entries = _entries(got)
        fault = None if entries == right else self._fault(case, entries)
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
        self._drop(entries)

    def _case(
        self, is_prompt: bool, num_tokens: int, num_outputs: int, num_cached: int, num_seqs: int, shuffle: int
    ) -> _Case:
        num_blocks = -(-num_tokens // self.block_size)
        numbers = random.Random(shuffle).sample(range(1, 30), num_blocks + num_seqs)
        shared, last = numbers[: num_blocks - 1], numbers[num_blocks - 1 :]
        seqs = []
        for i in range(num_seqs):
            seq = Sequence(3 + 2 * i, self._prompt(num_tokens - num_outputs, 0), self.block_size)
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

    def _drop(self, entries: list[Entry] | None) -> None:
        self.left = {i for i in self.left if self.said[i] == entries}

    def _fault(self, case: _Case, entries: list[Entry] | None) -> str | None:
        """The one thought that explains this answer, those before it, and those in the examples."""
        self._drop(entries)
        if self.replaying:
            return None
        for example in self.examples:
            self.left &= self._left_by(example)
        names = {THEORIES[i][0] for i in self.left}
        return next(iter(names)) if len(names) == 1 else None

    def _left_by(self, history: History) -> set[int]:
        """The thoughts that the learner's answers in this history bear out."""
        world = type(self)(self.subject, history.setup, Log())
        world.replaying = True
        with contextlib.suppress(Exception):  # a wrong answer ends it, too: what was answered up to then counts
            for operation in history.operations:
                world.perform(operation)
        return world.left


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


def _prepare_history(block_size: int, *operations: Operation) -> History:
    return History(sizes(block_size, 8), operations)


PREPARE_EXAMPLES = (  # kind, num_tokens, num_outputs, num_cached, num_seqs, shuffle
    _prepare_history(4, ("prepare", 0, 6, 0, 0, 1, 1), ("prepare", 0, 10, 0, 2, 1, 2), ("prepare", 1, 11, 1, 2, 1, 3)),
    _prepare_history(4, ("prepare", 0, 11, 3, 1, 1, 4)),
    _prepare_history(4, ("prepare", 0, 7, 3, 0, 1, 4)),
    _prepare_history(4, ("prepare", 0, 8, 0, 1, 1, 5)),
    _prepare_history(4, ("prepare", 0, 13, 0, 1, 1, 5)),
    _prepare_history(4, ("prepare", 1, 6, 2, 0, 2, 6)),
    _prepare_history(4, ("prepare", 1, 9, 2, 0, 1, 6)),
    _prepare_history(4, ("prepare", 1, 10, 2, 1, 1, 6)),
    _prepare_history(4, ("prepare", 0, 3, 0, 0, 1, 7)),
    _prepare_history(1, ("prepare", 0, 3, 0, 1, 1, 8), ("prepare", 1, 4, 1, 1, 3, 8)),
)
_PrepareWorld.examples = PREPARE_EXAMPLES


# 11-step: one step.

ASKS_ONCE = "a step asks the scheduler once"
ONE_PASS = "everything that a step computes goes through one forward pass"
BRANCHES = "behind its prompt a request has as many sequences as it asked for"
ONE_MORE = "every sequence that ran has one token more"
RIGHT_TOKEN = "every token is the one that the request would get alone"
ENDS = "an answer ends with its end token or at its limit, and not before"
LETS_GO = "what has ended lets go of its blocks, and what has not keeps them"
LEAVES = "a request that has ended leaves the scheduler"
RETURNS = "a step returns the requests that ended in it"
WHY = "of a request that was given up it is written down why"


@dataclass
class _Request:
    """A request beside what is known of it beforehand."""

    name: str
    group: SequenceGroup
    params: SamplingParams
    answers: list[list[int]]  # what each of its sequences generates alone
    counts: list[int] = field(default_factory=list)  # how many tokens of each it has by now; empty before the first
    given_up: bool = False

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, by the account."""
        return self.given_up or (bool(self.counts) and all(map(self.is_done, range(len(self.counts)))))

    def is_done(self, i: int) -> bool:
        """Whether this answer is complete."""
        return self.counts[i] >= len(self.answers[i])

    def seq_name(self, i: int) -> str:
        """What the learner reads."""
        return self.name if self.params.n == 1 else f"{self.name}.seqs[{i}]"


class _StepWorld(EngineWorld):
    """Requests that come, and steps.

    ("add_request", key, num_tokens, text, n, max_tokens, ignore_eos); ("step",) or ("step", count).
    """

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.requests: list[_Request] = []
        self.suspicions: list[str] = []  # what was done otherwise than decided, whether it has shown yet or not

    def choices(self) -> Iterable[Operation]:
        yield from [("step",)] * 24
        if len(self.requests) < MOST_REQUESTS:
            new = self.names.new_key()
            lengths = sorted({1, 2, self.block_size, self.block_size + 1, 2 * self.block_size, 3 * self.block_size + 1})
            for num_tokens in lengths:
                text, n = num_tokens % 2, 1 + (num_tokens + len(self.requests)) % 3
                yield "add_request", new, num_tokens, text, 1, 2 + 3 * (num_tokens % 3), 1
                yield "add_request", new, num_tokens, text, n, 6, num_tokens % 2

    def possible(self, operation: Operation) -> bool:
        return operation[0] == "step" or operation[1] not in self.names

    def _add_request(self, key: Any, num_tokens: int, text: int, n: int, max_tokens: int, ignore_eos: int) -> None:
        name, prompt = self.names.add(key), self._prompt(num_tokens, text)
        params = SamplingParams(n=n, max_tokens=max_tokens, ignore_eos=bool(ignore_eos))
        words = ", ".join(_request_words(num_tokens, text, params))
        self.log.call(f"{name} = engine.add_request({words})", self.engine.add_request, prompt, params)
        answers = [alone(prompt, params, i, self.max_model_len) for i in range(n)]
        self.requests.append(_Request(name, self.scheduler.arrivals[-1][0], params, answers))

    def _step(self, count: int = 1) -> None:
        line = "engine.step()" if count == 1 else f"for _ in range({count}): engine.step()"
        for turn in range(count):
            if turn:
                self.log.lines.pop()
            self._one_step(line)

    def _one_step(self, line: str) -> None:
        self.worker.calls.clear()
        self.worker.sampled.clear()
        num_steps = len(self.scheduler.steps)
        unfinished = [request for request in self.requests if not request.is_finished]
        got = self.log.call(line, self.engine.step, raises=(Idle, "never-returns"))
        asked = self.scheduler.steps[num_steps:]
        self.log.expect(
            ASKS_ONCE,
            "the number of times that it asked the scheduler",
            len(asked),
            1,
            "runs-to-the-end" if len(asked) > 1 else None,
        )
        (decided,) = asked
        contexts = self._account(decided)
        self._suspect(decided.outputs)
        passes = [name for name, _ in self.worker.calls].count("forward")
        fault = "one-pass-each" if passes > 1 else "nothing-computed"
        right = passes == 1 or (passes == 0 and not decided.scheduled)
        self.log.hold(ONE_PASS, right, "there should be one forward pass", f"there were {passes}", fault)
        for request in unfinished:
            self._check_branches(request)
        for request in unfinished:
            for i in range(len(request.counts)):
                self._check_token(request, i, contexts)
        for request in unfinished:
            for i in range(len(request.counts)):
                self._check_end(request, i, has_run=request.seq_name(i) in contexts)
        self._check_memory()
        self._check_queues()
        self._check_returned(got, [request for request in unfinished if request.is_finished], decided)
        self._check_errors()

    def _account(self, decided: Decided) -> dict[str, list[int]]:
        """Count what has to come of this step; what each sequence that runs had to read, by its name."""
        contexts: dict[str, list[int]] = {}
        for request in self.requests:
            for group, seqs in decided.scheduled:
                if group is request.group and not request.counts:
                    request.counts = [1] * request.params.n
                    contexts |= {request.seq_name(i): self._tokens(request, i)[:-1] for i in range(request.params.n)}
                elif group is request.group:
                    ran = [i for i, seq in enumerate(group.get_seqs()) if any(seq is each for each in seqs)]
                    for i in ran:
                        contexts[request.seq_name(i)] = self._tokens(request, i)
                        request.counts[i] += 1
            outputs = decided.outputs
            request.given_up |= any(
                group is request.group for group in (*outputs.ignored_seq_groups, *outputs.aborted_seq_groups)
            )
        return contexts

    def _tokens(self, request: _Request, i: int) -> list[int]:
        """Prompt and answer, as far as the account has come."""
        return request.group.get_seqs()[0].prompt_token_ids + request.answers[i][: request.counts[i]]

    def _suspect(self, outputs: Any) -> None:
        """Note what the worker was told otherwise than decided; a wrong token shows whether it matters."""
        calls = [(name, pairs) for name, pairs in self.worker.calls if pairs or name == "forward"]
        order = [name for name, _ in calls]
        wanted = {
            "swap_in": outputs.blocks_to_swap_in,
            "swap_out": outputs.blocks_to_swap_out,
            "copy": outputs.blocks_to_copy,
        }
        for name, pairs in wanted.items():
            told = {pair for call, told in calls if call == name for pair in told}
            elsewhere = {pair for call, told in calls if call != name for pair in told}
            if {(target, source) for source, target in pairs} & told - set(pairs):
                self.suspicions.append("pairs-turned-round")
            elif set(pairs) - told and set(pairs) <= elsewhere:
                self.suspicions.append("lists-exchanged")
            elif set(pairs) - told:
                self.suspicions.append(f"{name.replace('_', '-')}-forgotten")
        for first, second, suspicion in _WRONG_ORDERS:
            if first in order and second in order and order.index(first) < order.index(second):
                self.suspicions.append(suspicion)

    def _check_branches(self, request: _Request) -> None:
        got = len(request.group.get_seqs())
        if not request.counts or got == request.params.n == 1:
            return
        fault = None
        if got > request.params.n:
            fault = "forked-again" if sum(request.counts) > request.params.n else "one-child-too-many"
        elif got < request.params.n:
            fault = "never-forked" if got == 1 else None
        facts = {"group": request.name, "n": request.params.n, "got": got, "children": request.params.n - 1}
        self.log.expect(BRANCHES, f"the number of sequences of {request.name}", got, request.params.n, fault, **facts)

    def _check_token(self, request: _Request, i: int, contexts: dict[str, list[int]]) -> None:
        seq, name = request.group.get_seqs()[i], request.seq_name(i)
        got, wanted = seq.output_token_ids, request.answers[i][: request.counts[i]]
        facts = {"seq": name, "count": len(wanted), "group": request.name, "n": request.params.n}
        if len(got) != len(wanted):
            fault = None
            if got == wanted[:-1] and wanted[-1] == EOS:
                fault = "end-token-dropped"
            elif got == wanted[:-1]:
                fault = "first-sequence-only" if i else "no-token"
            elif i and len(wanted) == 1 and got[0] == request.answers[0][0]:
                fault = "forked-too-late"
            elif got[:-1] == wanted:
                fault = "two-tokens"
            self.log.expect(ONE_MORE, f"the number of output tokens of {name}", len(got), len(wanted), fault, **facts)
        self.log.hold(ONE_MORE, True, "", "")
        right = got == wanted
        fault = None if right else self._why_wrong(request, i, seq, contexts)
        should = f"{name} should have generated {show(wanted)}, as it would alone"
        self.log.hold(RIGHT_TOKEN, right, should, f"it has {show(got)}", fault, **facts)

    def _why_wrong(self, request: _Request, i: int, seq: Sequence, contexts: dict[str, list[int]]) -> str | None:
        """The thought behind a wrong newest token, by what was read for it and what was done to memory before."""
        answer, count, name = request.answers, request.counts[i], request.seq_name(i)
        if i and seq.output_token_ids[-1] == answer[0][count - 1]:
            return "one-token-for-all"
        theirs = {
            other.answers[j][other.counts[j] - 1]
            for other in self.requests
            for j in range(len(other.counts))
            if other.seq_name(j) in contexts
        }
        if seq.output_token_ids[-1] in theirs:
            return "token-of-another"
        rows = [row for each, row in self.worker.sampled if each is seq]
        others = {tuple(notes(tokens)) for key, tokens in contexts.items() if key != name}
        if rows and rows[-1].read in others:
            return "token-of-another"
        right = not rows or rows[-1].read == tuple(notes(contexts.get(name, [])))
        return None if right or not self.suspicions else self.suspicions[0]

    def _check_end(self, request: _Request, i: int, *, has_run: bool) -> None:
        if request.given_up:
            return
        seq, name, count = request.group.get_seqs()[i], request.seq_name(i), request.counts[i]
        answer, params = request.answers[i], request.params
        at_end_token = bool(answer[:count]) and answer[count - 1] == EOS
        facts = {
            "seq": name,
            "count": count,
            "max_tokens": params.max_tokens,
            "length": seq.get_len(),
            "prompt": seq.get_prompt_len(),
            "max_model_len": self.max_model_len,
            "status": show(seq.status),
            "ended": counted(sum(request.is_done(j) for j in range(len(request.counts))), "answer"),
            "group": request.name,
        }
        done, fault = request.is_done(i), None
        if done and not seq.is_finished():
            fault = "one-too-many"
            if at_end_token and not params.ignore_eos:
                fault = "end-token-overlooked"
            elif count < params.max_tokens:
                fault = "model-length-overlooked"
        elif not done and seq.is_finished():
            fault = self._why_too_early(request, i, seq)
        should = f"{name} should have {'ended' if done else 'gone on'} after {counted(count, 'token')}"
        self.log.hold(ENDS, done == seq.is_finished(), should, f"its status is {show(seq.status)}", fault, **facts)
        if done:
            stopped = at_end_token and not params.ignore_eos
            wanted = SequenceStatus.FINISHED_STOPPED if stopped else SequenceStatus.FINISHED_LENGTH_CAPPED
            self.log.expect(ENDS, f"the status of {name}", seq.status, wanted, "other-ending", wanted=wanted, **facts)
        elif has_run:
            self.log.expect(ENDS, f"the status of {name}", seq.status, SequenceStatus.RUNNING)

    def _why_too_early(self, request: _Request, i: int, seq: Sequence) -> str | None:
        """The thought behind an answer that was ended, where the moment bears out one thought alone."""
        count, limit = request.counts[i], request.params.max_tokens
        at_end_token = request.answers[i][count - 1] == EOS
        by_length = seq.get_len() == limit or (count == 1 and seq.get_len() > limit)
        reasons = {
            "ignore-eos-overlooked": at_end_token and request.params.ignore_eos,
            "siblings-ended-too": any(map(request.is_done, range(len(request.counts)))),
            "one-too-few": count == limit - 1,
            "prompt-counted": by_length,
        }
        borne_out = [name for name, bears_out in reasons.items() if bears_out]
        return borne_out[0] if len(borne_out) == 1 else None

    def _check_memory(self) -> None:
        tables = self.scheduler.block_manager.block_tables
        for request in self.requests:
            for i, seq in enumerate(request.group.get_seqs()):
                name, has_table = request.seq_name(i), seq.seq_id in tables
                wanted = seq.status in (SequenceStatus.RUNNING, SequenceStatus.SWAPPED)
                fault = "blocks-kept" if seq.is_finished() else None
                if wanted and not has_table:
                    done = any(map(request.is_done, range(len(request.counts))))
                    fault = "siblings-freed" if done else "child-without-blocks" if i else "freed-too-early"
                should = f"{name} should {'have its blocks' if wanted else 'have let go of its blocks'}"
                but = f"it has {'no block table' if wanted else 'a block table'}"
                self.log.hold(LETS_GO, has_table == wanted, should, but, fault, seq=name, group=request.name)

    def _check_queues(self) -> None:
        for request in self.requests:
            queued = any(group is request.group for group in self.scheduler.running)
            if request.is_finished:
                should, but = f"{request.name} should have left `scheduler.running`", "it is still there"
                self.log.hold(LEAVES, not queued, should, but, "ended-stays-in-queue", group=request.name)

    def _check_returned(self, got: Any, ended: list[_Request], decided: Decided) -> None:
        names = [request.name for request in ended]
        wanted = [request.group for request in ended]
        listed = list(got) if isinstance(got, Iterable) else []
        right = isinstance(got, Iterable) and _same(listed, wanted)
        fault = None
        if got is None:
            fault = "nothing-returned"
        elif not right:
            kept = [request.group for request in ended if not request.given_up]
            ran = [group for group, _ in decided.scheduled]
            if len(kept) < len(wanted) and _same(listed, kept):
                fault = "given-up-not-returned"
            elif len(ran) > len(kept) and (_same(listed, ran) or _same(listed, [*ran, *_given_up(ended)])):
                fault = "all-that-ran-returned"
            elif listed and _same(listed, [each for each in self._all_ended() if each in listed]):
                fault = "returned-again"
        should = f"the step should return the requests that ended in it, {', '.join(names) or 'none'}"
        self.log.hold(
            RETURNS, right, should, f"it returned {self._shown(got)}", fault, ended=", ".join(names) or "none"
        )

    def _all_ended(self) -> list[SequenceGroup]:
        return [request.group for request in self.requests if request.is_finished]

    def _shown(self, got: Any) -> str:
        """A learner's list of groups, by their names."""
        names = {id(request.group): request.name for request in self.requests}
        if isinstance(got, list | tuple):
            return ", ".join(names.get(id(each), show(each)) for each in got) or "none"
        return show(got)

    def _check_errors(self) -> None:
        for request in self.requests:
            if request.is_finished:
                error = self.engine.errors.get(request.group.request_id)
                why = self._why(request.group)
                right = _says(error, why) if request.given_up else error is None
                says_why = f"say why {request.name} was given up, {show(why)}"
                should = f"`engine.errors` should {says_why if request.given_up else f'not name {request.name}'}"
                but = f"it says {show(error)}"
                fault = None if isinstance(error, str) and error else "no-reason"
                fault = fault if request.given_up else "reason-for-all"
                self.log.hold(WHY, right, should, but, fault, group=request.name)


_WRONG_ORDERS = (
    ("forward", "swap_in", "computed-first"),
    ("forward", "swap_out", "computed-first"),
    ("forward", "copy", "computed-first"),
    ("copy", "swap_out", "copied-before-swap-out"),
    ("copy", "swap_in", "copied-before-swap-in"),
    ("swap_out", "swap_in", "swapped-out-first"),
)


def _says(error: Any, why: str) -> bool:
    """Whether what the learner wrote down gives the scheduler's reason."""
    return isinstance(error, str) and bool(error) and why in error


def _same(given: list[Any], wanted: list[Any]) -> bool:
    """Whether both hold the same objects, in whatever order."""
    return sorted(map(id, given)) == sorted(map(id, wanted))


def _given_up(ended: list[_Request]) -> Iterator[SequenceGroup]:
    return (request.group for request in ended if request.given_up)


def _step_history(setup: Setup, *operations: str) -> History:
    """A history from its operations as text.

    >>> _step_history({}, "step 2").operations
    (('step', 2),)
    """
    parts = (operation.split() for operation in operations)
    return History(setup, tuple(tuple(int(part) if part.isdigit() else part for part in words) for words in parts))


# add_request: request, tokens, text, n, max_tokens, ignore_eos
STEP_EXAMPLES: tuple[History, ...] = (
    _step_history(sizes(4, 8), "add_request a 6 0 1 2 1", "add_request b 3 1 1 3 1", "step", "step", "step"),
    _step_history(sizes(4, 8), "add_request a 6 0 2 3 1", "step", "step", "step"),
    _step_history(sizes(4, 8), "add_request a 1 1 1 7 1", "step 5", "step", "step"),
    _step_history(
        sizes(4, 5, 6, mode="swap"), "add_request a 7 1 3 2 1", "add_request b 2 1 1 3 1", "step 2", "step"
    ),  # a copy goes to a block that is swapped out in the same step
    _step_history(
        sizes(2, 4, 5), "add_request a 5 0 3 9 1", "add_request b 1 0 3 7 1", "step 2", "step"
    ),  # a block that has just come back is copied
    _step_history(
        sizes(2, 6, 4, mode="swap", eager=True), "add_request a 1 1 3 4 0", "add_request b 6 1 1 2 1", "step 4", "step"
    ),  # a CPU block is left and taken in the same step
    _step_history(
        sizes(4, 2, 2, mode="recompute"), "add_request a 7 0 2 5 0", "step 2", "step"
    ),  # of two answers one has ended, the other is recomputed
)


# 11-generate: many requests, to their end.

ONE_ANSWER_EACH = "there is an answer for each prompt, in their order"
ALL_TOKENS = "an answer's tokens are those that its request would get alone, one list for each of its n"
TOGETHER = "all requests are queued before the first step"
SAYS_WHY = "an answer that was given up says why, and no other"
NOTHING_LEFT = "nothing is left behind: no request, no block"


class _GenerateWorld(EngineWorld):
    """Prompts that are collected, and then answered in one call.

    ("ask", key, num_tokens, text, n, max_tokens, ignore_eos); ("generate",).
    """

    may_be_eager = False

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.asked: list[tuple[str, list[int], SamplingParams]] = []
        self.earlier = 0  # answers of the calls before

    def choices(self) -> Iterable[Operation]:
        if self.asked:
            yield from [("generate",)] * 6
        new = self.names.new_key()
        for num_tokens in sorted({1, self.block_size, self.block_size + 1, 3 * self.block_size + 1, 30}):
            n = 1 + (num_tokens + len(self.asked)) % 3 // 2
            yield "ask", new, num_tokens, num_tokens % 2, n, 2 + 3 * (len(self.asked) % 3), num_tokens % 2

    def possible(self, operation: Operation) -> bool:
        return bool(self.asked) if operation[0] == "generate" else operation[1] not in self.names

    def _ask(self, key: Any, num_tokens: int, text: int, n: int, max_tokens: int, ignore_eos: int) -> None:
        name = self.names.add(key)
        params = SamplingParams(n=n, max_tokens=max_tokens, ignore_eos=bool(ignore_eos))
        self.asked.append((name, self._prompt(num_tokens, text), params))
        prompt_words, params_words = _request_words(num_tokens, text, params)
        self.log.note(f"{name}, params_{name} = {prompt_words}, {params_words}")

    def _generate(self) -> None:
        names = [name for name, _, _ in self.asked]
        line = f"engine.generate([{', '.join(names)}], [{', '.join(f'params_{name}' for name in names)}])"
        prompts, params = [list(prompt) for _, prompt, _ in self.asked], [each for _, _, each in self.asked]
        steps, arrivals = len(self.scheduler.steps), len(self.scheduler.arrivals)
        got = self.log.call(line, self.engine.generate, prompts, params, raises=(Idle, "goes-on-for-ever"))
        groups, strangers = self._groups(arrivals)
        given_up = self._given_up(steps)
        arrived = self.scheduler.arrivals[arrivals:]
        if isinstance(got, Iterator):
            should = f"there should be {counted(len(names), 'Answer')} in a list"
            self.log.hold(ONE_ANSWER_EACH, False, should, f"it returned a {type(got).__name__}")
        late = counted(sum(number > steps for _, number in arrived), "request")
        in_time = sum(number == steps for _, number in arrived)
        should, but = "all requests should be queued before the first step", f"{in_time} of {len(names)} were"
        fault = "one-after-another" if len(arrived) > in_time else None
        self.log.hold(TOGETHER, in_time == len(names), should, but, fault, late=late)
        for (name, prompt, _), group in zip(self.asked, groups, strict=True):
            fault = "parameters-of-another" if prompt in map(_prompt_of, strangers) else None
            should, but = f"{name} should be queued with params_{name}", "it was not"
            self.log.hold(ALL_TOKENS, group is not None, should, but, fault, name=name)
        self._check_left(names, groups)
        self._check_answers(got, names, groups, given_up)
        self.asked.clear()
        self.earlier += len(names)

    def _groups(self, arrivals: int) -> tuple[list[SequenceGroup | None], list[SequenceGroup]]:
        """The group of each prompt that came with its own parameters, and the groups that are left over."""
        left = [group for group, _ in self.scheduler.arrivals[arrivals:]]
        found = []
        for _, prompt, params in self.asked:
            own = (group for group in left if _prompt_of(group) == prompt and group.sampling_params == params)
            found.append(next(own, None))
            left = [group for group in left if group is not found[-1]]
        return found, left

    def _given_up(self, steps: int) -> list[SequenceGroup]:
        outputs = [decided.outputs for decided in self.scheduler.steps[steps:]]
        return [group for each in outputs for group in (*each.ignored_seq_groups, *each.aborted_seq_groups)]

    def _check_left(self, names: list[str], groups: list[SequenceGroup | None]) -> None:
        unfinished = [n for n, group in zip(names, groups, strict=True) if group is None or not group.is_finished()]
        should, but = "every request should have ended", f"{', '.join(unfinished)} has not"
        self.log.hold(NOTHING_LEFT, not unfinished, should, but, "stops-too-early", names=", ".join(unfinished))
        manager = self.scheduler.block_manager
        self.log.expect(NOTHING_LEFT, "the number of block tables", len(manager.block_tables), 0)
        self.log.expect(NOTHING_LEFT, "has_unfinished_seqs()", self.scheduler.has_unfinished_seqs(), False)

    def _check_answers(
        self, got: Any, names: list[str], groups: list[SequenceGroup | None], given_up: list[SequenceGroup]
    ) -> None:
        lost = [group in given_up for group in groups]
        wanted = [self._wanted(asked, group) for asked, group in zip(self.asked, groups, strict=True)]
        lists = _answers(got)
        facts: dict[str, Any] = {"prompts": counted(len(names), "prompt"), "lost": counted(sum(lost), "request")}
        facts["answers"] = "none" if lists is None else counted(len(lists), "answer")
        fault = "answers-not-returned" if got is None else None
        if lists is not None and sum(lost) and len(lists) == len(names) - sum(lost):
            fault = "given-up-left-out"
        elif lists == [[answer] for answers in wanted for answer in answers]:
            fault = "one-answer-a-sequence"
        elif lists is not None and self.earlier and len(lists) == self.earlier + len(names):
            fault = "earlier-answers-again"
        right_number = lists is not None and len(lists) == len(names)
        should, but = f"there should be {counted(len(names), 'Answer')} in a list", f"it returned {show(got)}"
        self.log.hold(ONE_ANSWER_EACH, right_number, should, but, fault, **facts)
        answers = list(zip(names, self.asked, wanted, lists or [], list(got), groups, strict=True))
        found_lists = [
            [each for each in tokens if each] if is_lost else tokens
            for tokens, is_lost in zip(lists or [], lost, strict=False)
        ]
        permuted = found_lists != wanted and sorted(map(repr, found_lists)) == sorted(map(repr, wanted))
        self.log.hold(
            ONE_ANSWER_EACH,
            not permuted,
            "the answers should stand in the order of their prompts",
            "they are in another",
            "order-of-ending",
            **facts,
        )
        for name, (_, prompt, params), token_ids, tokens, answer, group in answers:
            is_lost = group in given_up
            found = [each for each in tokens if each] if is_lost else tokens
            facts |= {"name": name, "n": params.n, "got": show(found)}
            self.log.hold(
                ALL_TOKENS,
                found == token_ids,
                f"the answer to {name} should be {show(token_ids)}",
                f"it is {show(found)}",
                _fault_of_answer(found, token_ids, prompt),
                **facts,
            )
            error = answer.error
            why = self._why(group) if group else ""
            right = _says(error, why) if is_lost else error is None
            says_why = f"say why it was given up, {show(why)}"
            should = f"the answer to {name} should {says_why if is_lost else 'name no error'}"
            fault = None if isinstance(error, str) and error else "no-reason"
            fault = fault if is_lost else "reason-for-all"
            self.log.hold(SAYS_WHY, right, should, f"its error is {show(error)}", fault, **facts)

    def _wanted(self, asked: tuple[str, list[int], SamplingParams], group: SequenceGroup | None) -> list[list[int]]:
        """What the request gets alone; of one that was given up as much as it had got."""
        _, prompt, params = asked
        full = [alone(prompt, params, i, self.max_model_len) for i in range(params.n)]
        if group is None or not any(
            seq.status in (SequenceStatus.FINISHED_IGNORED, SequenceStatus.FINISHED_ABORTED) for seq in group.get_seqs()
        ):
            return full
        some = [answer[: seq.get_output_len()] for answer, seq in zip(full, group.get_seqs(), strict=False)]
        return [answer for answer in some if answer]


def _prompt_of(group: SequenceGroup) -> list[int]:
    return group.get_seqs()[0].prompt_token_ids


def _answers(got: Any) -> list[Any] | None:
    """The tokens of each answer as plain lists; None where it is no list of answers."""
    try:
        return [_nested(answer.token_ids) for answer in got if answer.error is None or answer]
    except Exception:  # noqa: BLE001  (whatever is raised on the way, it is no such list)
        return None


def _nested(token_ids: Any) -> list[Any]:
    return [_nested(each) if isinstance(each, list | tuple) else each.__index__() for each in token_ids]


def _fault_of_answer(found: list[Any], wanted: list[list[int]], prompt: list[int]) -> str | None:
    """The thought behind the wrong tokens of an answer."""
    if found == wanted[:1] and len(wanted) > 1:
        return "first-answer-only"
    if found == [token for answer in wanted for token in answer]:
        return "one-list-for-all"
    return "prompt-included" if found == [prompt + answer for answer in wanted] else None


GENERATE_EXAMPLES: tuple[History, ...] = (_step_history(sizes(4, 8), "ask a 6 0 1 4 1", "ask b 3 1 1 2 1", "generate"),)


STEPS = (
    Step(
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
        examples=PREPARE_EXAMPLES,
        setups=_block_sizes,
    ),
    Step(
        exercise_id="11-step",
        title="one step",
        points=5,
        subject="Engine",
        writes=("step", "_draw", "_append"),
        through=("step",),
        needs=("add_request", "prepare"),
        after=("11-prefill",),
        reference=(Engine.step, Engine._draw, Engine._append),
        properties=(ASKS_ONCE, ONE_PASS, BRANCHES, ONE_MORE, RIGHT_TOKEN, ENDS, LETS_GO, LEAVES, RETURNS, WHY),
        misconceptions={
            "runs-to-the-end": "A step is one decision of the scheduler, carried out: yours went on by itself, and "
            "nobody could join in between.",
            "one-pass-each": "All that runs in a step goes through the model together, which is what makes serving "
            "many cheap: collect the new tokens of all groups, then call `forward` once.",
            "nothing-computed": "The scheduler decides and does not compute: what runs in a step goes through the "
            "model in that step, by way of `worker.forward`.",
            "computed-first": "Blocks are moved before anything is computed: tokens that are computed first read "
            "blocks that are not there yet, or write into blocks that somebody still has to leave.",
            "copied-before-swap-out": "Swap out comes before copy: a block that is swapped out may be the target of a "
            "copy in the same step, and what it held would be overwritten before it is saved.",
            "copied-before-swap-in": "Swap in comes before copy: a block that has just come back may be the source of "
            "a copy in the same step.",
            "swapped-out-first": "Swap in comes before swap out: the CPU block that a request leaves may be given to "
            "the one that has to make room in the same step.",
            "copy-forgotten": "The block manager writes copies down and leaves them to you: without `worker.copy` a "
            "sequence reads a block of its own that nobody has filled.",
            "swap-in-forgotten": "In the books a swapped request is back on the GPU; that its blocks are there as well "
            "is up to you: `blocks_to_swap_in` has to be carried out.",
            "swap-out-forgotten": "A swapped request's blocks go to others at once, so what they hold has to be saved "
            "in the same step: `blocks_to_swap_out` has to be carried out.",
            "lists-exchanged": "Each list of pairs has a call of its own, because a pair names blocks of two pools: "
            "yours went to another one.",
            "pairs-turned-round": "A pair is (source, destination) as it stands: you turned one round, and what was to "
            "be saved is overwritten.",
            "never-forked": "`{group}` asked for {n} answers: they share the prompt, and when it has been computed the "
            "request is forked into as many sequences.",
            "one-child-too-many": "The first of {n} answers is the sequence that brought the prompt: only the others "
            "are forked, {children} here and not {n}.",
            "forked-again": "A request is forked once in its life, behind its prompt: `{group}` has all its {n} "
            "sequences already, and nobody is added when it decodes or one of them is recomputed.",
            "forked-too-late": "Fork before the token joins, for the sequences share the prompt and nothing behind it: "
            "`{seq}` has a sibling's first token beside its own.",
            "one-token-for-all": "Each of the {n} answers draws a token of its own from the row: with one draw for all "
            "of them they would be the same answer {n} times.",
            "end-token-dropped": "The end token belongs to the tokens of the answer, as its last: `{seq}` should have "
            "{count} now.",
            "first-sequence-only": "Every sequence of a group that ran gets its token: `{seq}` has got none.",
            "no-token": "What follows a sequence joins it, at the end of a prompt, too: `{seq}` should have {count} "
            "output tokens now.",
            "two-tokens": "A step gives a sequence one token: `{seq}` should have {count} now, and has one more.",
            "token-of-another": "A row belongs to the sequence whose tokens were computed for it, in the order of the "
            "batch: `{seq}` has got a token that follows another one.",
            "end-token-overlooked": "An answer ends with an end token of the model's, unless the request says "
            "`ignore_eos`: `{seq}` has got one and goes on.",
            "ignore-eos-overlooked": "`ignore_eos` asks to go on behind an end token: `{seq}` was ended by one all the "
            "same.",
            "one-too-many": "max_tokens is how many an answer may have: `{seq}` has {count} of {max_tokens} and is to "
            "end with this one, and not with the next.",
            "one-too-few": "max_tokens may be reached: `{seq}` has {count} of {max_tokens} tokens and was ended before "
            "the last.",
            "prompt-counted": "max_tokens is about the answer and not about the prompt in front of it: `{seq}` has "
            "{count} of {max_tokens}, and was ended at a length of {length}.",
            "model-length-overlooked": "A sequence ends at max_model_len, however many tokens it was promised: `{seq}` "
            "is {length} tokens long, and {max_model_len} is the limit.",
            "other-ending": "How an answer ended is told to whoever asked: `{seq}` should be {wanted}, and yours is "
            "{status}.",
            "siblings-ended-too": "Each answer ends for itself: `{seq}` was ended when a sibling had ended.",
            "blocks-kept": "An answer that has ended lets go of its blocks in the same step, so that the next "
            "one may give them away: `{seq}` still has its block table.",
            "child-without-blocks": "A child shares its parent's blocks because the block manager is told: fork it "
            "through the scheduler, with `self.fork`, since `{seq}` has no block table.",
            "freed-too-early": "Only what has ended lets go: `{seq}` goes on in the next step, and its keys and values "
            "are in blocks that are nobody's now.",
            "siblings-freed": "Each sequence lets go of its own blocks: `{group}` goes on in `{seq}`, whose block "
            "table went with a sibling's.",
            "ended-stays-in-queue": "A request that has ended leaves the scheduler in the same step "
            "(`free_finished_seq_groups`): `{group}` still stands in `running`, as if there were something left to do.",
            "nothing-returned": "Whoever calls `step` learns from it who has ended ({ended}): yours returned None.",
            "given-up-not-returned": "A request that the scheduler gave up has ended, too, and somebody waits for it: "
            "those that ended in this step are {ended}.",
            "all-that-ran-returned": "A step returns who has ended in it and not everybody who ran: the right list is "
            "{ended}.",
            "returned-again": "A step returns who has ended in it, each request once in its life: the right list is "
            "{ended}.",
            "no-reason": "The scheduler has given `{group}` up, and its caller will ask why: write the reason down in "
            "`self.errors`, under the request_id.",
        },
        world=_StepWorld,
        examples=STEP_EXAMPLES,
        setups=random_sizes,
    ),
    Step(
        exercise_id="11-generate",
        title="many requests, to their end",
        points=2,
        subject="Engine",
        writes=("generate",),
        needs=("add_request", "step"),
        after=("11-step",),
        reference=(Engine.generate,),
        properties=(ONE_ANSWER_EACH, ALL_TOKENS, TOGETHER, SAYS_WHY, NOTHING_LEFT),
        misconceptions={
            "goes-on-for-ever": "A request that the scheduler gives up never gets its tokens, so waiting for them "
            "never ends: go on while the scheduler has unfinished requests, and no longer.",
            "stops-too-early": "A step in which nobody ends is not the last, and a request that made room needs more "
            "steps than it has tokens: go on while the scheduler has unfinished requests; {names} had not ended.",
            "one-after-another": "Queue all requests first and then step: {late} came when a step had been made "
            "already, and a scheduler cannot run together what it has not got.",
            "order-of-ending": "Requests end in an order of their own, and whoever asked counts on theirs: the first "
            "answer belongs to the first prompt.",
            "given-up-left-out": "Every prompt gets an answer, one that was given up as well ({lost} here): leave it "
            "out, and all behind it stand at the wrong place.",
            "one-answer-a-sequence": "An `Answer` belongs to a prompt, however many sequences its request has: "
            "a list of {answers} is too long for {prompts}.",
            "parameters-of-another": "Each prompt has sampling parameters of its own, at the same place in the other "
            "list: `{name}` was queued without them.",
            "answers-not-returned": "The answers are what the caller is waiting for: yours returned None.",
            "earlier-answers-again": "A call returns the answers to its own prompts, {prompts} here: yours still "
            "brings along those of an earlier call.",
            "first-answer-only": "A request may ask for several answers: `{name}` wants {n}, one list of tokens for "
            "each of its sequences.",
            "one-list-for-all": "`token_ids` is a list of answers, each of them a list of tokens, for one answer as "
            "well: the answer to `{name}` is all in one.",
            "prompt-included": "The answer is what was generated: the prompt of `{name}` is known to whoever asked, "
            "and stands in front of your answer.",
            "no-reason": "A request that was given up says why, in the answer's `error`: that of `{name}` is empty, "
            "and an answer that is simply short looks complete.",
            "reason-for-all": "`error` is None for an answer that came to its end, as that of `{name}` did: who looks "
            "whether something went wrong, looks there.",
        },
        world=_GenerateWorld,
        examples=GENERATE_EXAMPLES,
        setups=random_sizes,
    ),
)
