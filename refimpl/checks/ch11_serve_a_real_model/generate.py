"""11-generate: many requests, to their end.

Each prompt's answer is known from its request alone, and the scheduler's own word says why one was given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from refimpl.checks.engine_account import Idle, alone
from refimpl.checks.engine_world import EngineWorld, random_sizes, sizes
from refimpl.checks.step import History, Log, Operation, Setup, Step, counted, show
from refimpl.sequence import SamplingParams, SequenceGroup, SequenceStatus
from refimpl.serving.plain_engine import Engine

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
    lost = (ONE_ANSWER_EACH, ALL_TOKENS)

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        self.requests: list[tuple[str, list[int], SamplingParams]] = []
        self.earlier = 0  # answers of the calls before

    def choices(self) -> Iterable[Operation]:
        if self.requests:
            yield from [("generate",)] * 6
        new = self.names.new_key()
        for num_tokens in sorted({1, self.block_size, self.block_size + 1, 3 * self.block_size + 1, 30}):
            n = 1 + (num_tokens + len(self.requests)) % 3 // 2
            yield "ask", new, num_tokens, num_tokens % 2, n, 2 + 3 * (len(self.requests) % 3), num_tokens % 2

    def possible(self, operation: Operation) -> bool:
        return bool(self.requests) if operation[0] == "generate" else operation[1] not in self.names

    def _ask(self, key: Any, num_tokens: int, text: int, n: int, max_tokens: int, ignore_eos: int) -> None:
        name = self.names.add(key)
        prompt, params, words = self.asked(num_tokens, text, n, max_tokens, ignore_eos)
        self.requests.append((name, prompt, params))
        self.log.note(f"{name}, params_{name} = {', '.join(words)}")

    def _generate(self) -> None:
        names = [name for name, _, _ in self.requests]
        line = f"engine.generate([{', '.join(names)}], [{', '.join(f'params_{name}' for name in names)}])"
        prompts, params = [list(prompt) for _, prompt, _ in self.requests], [each for _, _, each in self.requests]
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
        for (name, prompt, _), group in zip(self.requests, groups, strict=True):
            fault = "parameters-of-another" if prompt in map(_prompt_of, strangers) else None
            should, but = f"{name} should be queued with params_{name}", "it was not"
            self.log.hold(ALL_TOKENS, group is not None, should, but, fault, name=name)
        self._check_left(names, groups)
        self._check_answers(got, names, groups, given_up)
        self.requests.clear()
        self.earlier += len(names)

    def _groups(self, arrivals: int) -> tuple[list[SequenceGroup | None], list[SequenceGroup]]:
        """The group of each prompt that came with its own parameters, and the groups that are left over."""
        left = [group for group, _ in self.scheduler.arrivals[arrivals:]]
        found = []
        for _, prompt, params in self.requests:
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
        wanted = [self._wanted(asked, group) for asked, group in zip(self.requests, groups, strict=True)]
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
        answers = list(zip(names, self.requests, wanted, lists or [], list(got), groups, strict=True))
        found_lists = [
            [each for each in tokens if each] if is_lost else tokens
            for tokens, is_lost in zip(lists or [], lost, strict=False)
        ]
        permuted = found_lists != wanted and sorted(map(repr, found_lists)) == sorted(map(repr, wanted))
        fault = "order-of-ending" if permuted and self._as_they_ended(found_lists, wanted, groups) else None
        self.log.hold(
            ONE_ANSWER_EACH,
            not permuted,
            "the answers should stand in the order of their prompts",
            "they are in another",
            fault,
            **facts,
        )
        for name, (_, prompt, params), token_ids, tokens, answer, group in answers:
            is_lost = group in given_up
            found = [each for each in tokens if each] if is_lost else tokens
            facts |= {"name": name, "n": params.n, "got": show(found)}
            fault = None if found in wanted else _fault_of_answer(found, token_ids, prompt)
            self.log.hold(
                ALL_TOKENS,
                found == token_ids,
                f"the answer to {name} should be {show(token_ids)}",
                f"it is {show(found)}",
                fault,
                **facts,
            )
            right, fault = self.says_why(answer.error, group if is_lost else None)
            says_why = f"say why it was given up, {show(self.why(group) if group else '')}"
            should = f"the answer to {name} should {says_why if is_lost else 'name no error'}"
            self.log.hold(SAYS_WHY, right, should, f"its error is {show(answer.error)}", fault, **facts)

    def _as_they_ended(
        self, found: list[list[Any]], wanted: list[list[list[int]]], groups: list[SequenceGroup | None]
    ) -> bool:
        """Whether the answers that were found stand in the order in which their requests ended."""
        left = sorted(zip(map(self._last_step, groups), wanted, strict=True), key=lambda each: each[0])
        ends = []
        for answer in found:
            ends.append(left.pop([each for _, each in left].index(answer))[0])
        return ends == sorted(ends)

    def _last_step(self, group: SequenceGroup | None) -> int:
        """The step in which the request was seen last."""
        steps = [
            (
                *(each for each, _ in decided.scheduled),
                *decided.outputs.ignored_seq_groups,
                *decided.outputs.aborted_seq_groups,
            )
            for decided in self.scheduler.steps
        ]
        return max((i for i, seen in enumerate(steps) if any(each is group for each in seen)), default=-1)

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


EXAMPLES: tuple[History, ...] = (
    History.read(sizes(4, 8), "ask a 6 0 1 4 1", "ask b 3 1 1 2 1", "generate"),
    History.read(sizes(16, 64, max_model_len=200), "ask a 2 0 3 150 1", "generate"),
)


STEP = Step(
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
    examples=EXAMPLES,
    setups=random_sizes,
)
