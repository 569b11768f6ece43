"""11-step: one step.

What an engine gets wrong shows in the tokens, and what it did in the step in which it went wrong tells the thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from refimpl.checks.engine_account import END_TOKENS, Decided, Idle, alone, notes
from refimpl.checks.engine_world import EngineWorld, random_sizes, sizes
from refimpl.checks.step import RUNS, History, Log, Operation, Setup, Step, counted, said, show
from refimpl.sequence import SamplingParams, Sequence, SequenceGroup, SequenceStatus
from refimpl.serving.plain_engine import Engine

MOST_REQUESTS = 5  # of a random history

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

    @property
    def is_forked(self) -> bool:
        """Whether it has the several sequences that it asked for."""
        return len(self.group.get_seqs()) == self.params.n > 1

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

    lost = (ONE_MORE, RETURNS)

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.requests: list[_Request] = []
        self.suspicions: list[str] = []  # what was done otherwise than decided, whether it has shown yet or not
        self.has_left_out = False  # whether a step has run somebody who went on, and did not return them

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
        name = self.names.add(key)
        prompt, params, words = self.asked(num_tokens, text, n, max_tokens, ignore_eos)
        self.log.call(f"{name} = engine.add_request({', '.join(words)})", self.engine.add_request, prompt, params)
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
        ended = [seq for request in self.requests for seq in request.group.get_seqs() if seq.is_finished()]
        try:
            got = self.log.call(line, self.engine.step, raises=(Idle, "never-returns"))
        except (StopIteration, IndexError) as error:  # it may have run out of rows
            self._check_drawn(ended)
            self._check_rows(error)
            raise
        self._check_drawn(ended)
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

    def _check_drawn(self, ended: list[Sequence]) -> None:
        for request in self.requests:
            for i, seq in enumerate(request.group.get_seqs()):
                drawn = any(each is seq for each, _ in self.worker.sampled)
                if drawn and any(each is seq for each in ended):
                    should, but = f"nothing should be drawn for {request.seq_name(i)}, which has ended", "a token was"
                    self.log.hold(ONE_MORE, False, should, but, "drawn-for-the-ended", group=request.name)

    def _check_rows(self, error: Exception) -> None:
        """Say why it ran out of rows, where each has been drawn from and an answer of a new request has had none."""
        scheduled = self.scheduler.steps[-1].scheduled
        if len(self.worker.sampled) < sum(len(seqs) for _, seqs in scheduled):
            return
        for request in self.requests:
            drawn = sum(any(seq is each for each, _ in self.worker.sampled) for seq in request.group.get_seqs())
            if not request.counts and 0 < drawn < len(request.group.get_seqs()):
                facts = {"group": request.name, "n": request.params.n}
                but = f"it raised {said(error)}"
                self.log.hold(RUNS, False, "it should raise nothing", but, "row-for-each-answer", **facts)

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
            fault = "forked-again" if sum(request.counts) > request.params.n else None
            if got == request.params.n + 1 and not fault and not any(each.is_forked for each in self.requests):
                fault = "one-child-too-many"
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
            if got == wanted[:-1] and wanted[-1] in END_TOKENS:
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
        at_end_token = bool(answer[:count]) and answer[count - 1] in END_TOKENS
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
        at_end_token = request.answers[i][count - 1] in END_TOKENS
        by_length = seq.get_len() == limit or (count == 1 and seq.get_len() > limit)
        if seq.get_len() == self.max_model_len - 1:
            return None
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
                untouched = any(group.num_unfinished_seqs() == group.num_seqs() for group in ran)
                fault = "all-that-ran-returned" if untouched and not self.has_left_out else None
            elif len(listed) > len(wanted) and all(group in listed for group in wanted):
                earlier = [group for group in self._all_ended() if group in listed]
                fault = "returned-again" if _same(listed, earlier) else None
        self.has_left_out |= right and len(decided.scheduled) > len(ended)
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
                right, fault = self.says_why(error, request.group if request.given_up else None)
                says_why = f"say why {request.name} was given up, {show(self.why(request.group))}"
                should = f"`engine.errors` should {says_why if request.given_up else f'not name {request.name}'}"
                self.log.hold(WHY, right, should, f"it says {show(error)}", fault, group=request.name)


_WRONG_ORDERS = (
    ("forward", "swap_in", "computed-first"),
    ("forward", "swap_out", "computed-first"),
    ("forward", "copy", "computed-first"),
    ("copy", "swap_out", "copied-before-swap-out"),
    ("copy", "swap_in", "copied-before-swap-in"),
    ("swap_out", "swap_in", "swapped-out-first"),
)


def _same(given: list[Any], wanted: list[Any]) -> bool:
    """Whether both hold the same objects, in whatever order."""
    return sorted(map(id, given)) == sorted(map(id, wanted))


def _given_up(ended: list[_Request]) -> Iterator[SequenceGroup]:
    return (request.group for request in ended if request.given_up)


# add_request: request, tokens, text, n, max_tokens, ignore_eos
EXAMPLES: tuple[History, ...] = (
    History.read(sizes(4, 8), "add_request a 6 0 1 2 1", "add_request b 3 1 1 3 1", "step", "step", "step"),
    History.read(sizes(4, 8), "add_request a 6 0 2 3 1", "step", "step", "step"),
    History.read(sizes(4, 8), "add_request a 1 1 1 7 1", "step 5", "step", "step"),
    History.read(
        sizes(4, 5, 6, mode="swap"), "add_request a 7 1 3 2 1", "add_request b 2 1 1 3 1", "step 2", "step"
    ),  # a copy goes to a block that is swapped out in the same step
    History.read(
        sizes(2, 4, 5), "add_request a 5 0 3 9 1", "add_request b 1 0 3 7 1", "step 2", "step"
    ),  # a block that has just come back is copied
    History.read(
        sizes(2, 6, 4, mode="swap", eager=True), "add_request a 1 1 3 4 0", "add_request b 6 1 1 2 1", "step 4", "step"
    ),  # a CPU block is left and taken in the same step
    History.read(
        sizes(4, 2, 2, mode="recompute"), "add_request a 7 0 2 5 0", "step 2", "step"
    ),  # of two answers one has ended, the other is recomputed
    History.read(sizes(4, 8, max_model_len=12), "add_request a 12 0 1 5 1", "step"),
    History.read(sizes(4, 8, max_model_len=12), "add_request a 13 0 1 2 1", "add_request b 14 0 1 2 1", "step"),
)


STEP = Step(
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
        "drawn-for-the-ended": "Only who ran in this step has a row: `{group}` has an answer that has ended, so go "
        "over the sequences in the metadata's `seq_data`, and not over all that the group has.",
        "row-for-each-answer": "A prompt has one row, however many answers begin behind it: each of the {n} of "
        "`{group}` draws its first token from that one, and the next row belongs to somebody else.",
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
    examples=EXAMPLES,
    setups=random_sizes,
)
