"""08-prefills: who is let in.

The head of the queue first, up to the first that has to wait; who can never run is ended and reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from refimpl.block_manager import AllocStatus
from refimpl.checks.scheduler_account import WAITING, Refused, Request, SchedulerAccount
from refimpl.checks.scheduler_world import NEXT, SchedulerWorld, sizes, step_of
from refimpl.checks.step import History
from refimpl.sequence import SequenceStatus


class _OvertakesLater(SchedulerAccount):
    def stops_at(self, request: Request, answer: AllocStatus) -> bool:
        return answer is not AllocStatus.LATER


class _OvertakesBudget(SchedulerAccount):
    def stops_at(self, request: Request, answer: AllocStatus) -> bool:
        return answer is AllocStatus.LATER


class _OvertakesBoth(SchedulerAccount):
    def stops_at(self, request: Request, answer: AllocStatus) -> bool:
        return False


class _LaterIsNever(SchedulerAccount):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        answer = super().answer_to_prompt(request)
        return AllocStatus.NEVER if answer is AllocStatus.LATER else answer


class _NeverIsLater(SchedulerAccount):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        answer = super().answer_to_prompt(request)
        return AllocStatus.LATER if answer is AllocStatus.NEVER else answer


class _WaitsForBlocksFirst(SchedulerAccount):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        blocks = self.blocks.answer(self.blocks.required(len(request.of(WAITING)[0].tokens)))
        return blocks if blocks is AllocStatus.LATER else super().answer_to_prompt(request)


class _WaitsForTheStepFirst(SchedulerAccount):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        return super().answer_to_prompt(request) if self.prompt_fits(request) else AllocStatus.LATER


class _WaitsForBothFirst(_WaitsForBlocksFirst):
    def answer_to_prompt(self, request: Request) -> AllocStatus:
        return super().answer_to_prompt(request) if self.prompt_fits(request) else AllocStatus.LATER


class _IgnoredStays(SchedulerAccount):
    """The loop goes on with the same request, which has no WAITING sequence any more."""

    error = "IndexError"

    def ignore(self, request: Request, queue: list[Request]) -> None:
        raise Refused(self.error)


class _IgnoringEndsTheStep(SchedulerAccount):
    def in_turn(self, queue: list[Request]) -> Iterator[Request]:
        for request in list(queue):
            if not self.now.ignored:
                yield request


class _IgnoredStaysAndStops(_IgnoringEndsTheStep):
    def ignore(self, request: Request, queue: list[Request]) -> None:
        super().ignore(request, queue)
        queue.insert(0, request)


class _NothingCharged(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        if 2 in self.now.phases:
            super().charge(num_tokens, num_seqs)


class _TokensNotCharged(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        super().charge(num_tokens if 2 in self.now.phases else 0, num_seqs)


class _SeqsNotCharged(SchedulerAccount):
    def charge(self, num_tokens: int, num_seqs: int) -> None:
        super().charge(num_tokens, num_seqs if 2 in self.now.phases else 0)


class _OnePromptAStep(SchedulerAccount):
    def in_turn(self, queue: list[Request]) -> Iterator[Request]:
        for request in list(queue):
            if not self.now.scheduled:
                yield request


class _OneSequenceCharged(SchedulerAccount):
    def prompt_seqs(self, request: Request) -> int:
        return len(request.unfinished)


class _ThereCharged(SchedulerAccount):
    def prompt_seqs(self, request: Request) -> int:
        return len(request.members)


class _PromptOnly(SchedulerAccount):
    def prompt_len(self, request: Request) -> int:
        return request.unfinished[0].prompt_len


class _HitsNotCharged(SchedulerAccount):
    def prompt_charge(self, request: Request) -> tuple[int, int]:
        num_tokens = self.prompt_len(request) - self.hits.get(request.name, 0)
        return num_tokens, num_tokens


class _HitsNotChargedToTheStep(SchedulerAccount):
    def prompt_charge(self, request: Request) -> tuple[int, int]:
        return self.prompt_len(request) - self.hits.get(request.name, 0), self.prompt_len(request)


class _NewestPromptFirst(SchedulerAccount):
    def in_turn(self, queue: list[Request]) -> Iterable[Request]:
        return queue[::-1]


class _StaysWaiting(SchedulerAccount):
    def set_status(self, request: Request, before: SequenceStatus, after: SequenceStatus) -> None:
        if before is not WAITING:
            super().set_status(request, before, after)


class _FirstRuns(SchedulerAccount):
    def set_status(self, request: Request, before: SequenceStatus, after: SequenceStatus) -> None:
        if before is WAITING:
            request.of(before)[0].status = after
        else:
            super().set_status(request, before, after)


class _FirstMeasured(SchedulerAccount):
    def prompt_len(self, request: Request) -> int:
        return len(request.members[0].tokens)


class _AllCharged(SchedulerAccount):
    def prompt_seqs(self, request: Request) -> int:
        return max(request.wanted, len(request.members))


class _AllRun(SchedulerAccount):
    """Who has ended has no blocks to be told of."""

    def admit(self, request: Request) -> None:
        super().admit(request)
        if any(member.has_ended for member in request.members):
            raise Refused("KeyError")


class _NoPrompts(SchedulerAccount):
    def num_prompts(self) -> int:
        return 0


EXAMPLES = (
    History.read(
        sizes(4, 8, max_seqs=4, max_len=12, max_tokens=12),
        "add a 5 1 0 0",
        "add b 7 1 0 0",
        "add c 1 1 0 0",
        NEXT,
        NEXT,
    ),
    History.read(sizes(4, 4), "add a 8 1 0 0", "add b 12 1 0 0", "add c 1 1 0 0", NEXT),
    History.read(sizes(4, 4), "add a 3 1 0 0", "add b 17 1 0 0", "add c 3 1 0 0", NEXT),
    History.read(sizes(4, 8, max_len=8), "add a 9 1 0 0", "add b 3 1 0 0", NEXT),
    History.read(sizes(4, 4, percent=25), "add a 13 1 0 0", "add b 12 1 0 0", NEXT),
    History.read(sizes(4, 8, max_seqs=3), "add a 4 2 0 0", "add b 4 2 0 0", "add c 1 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 8, max_seqs=2), "add a 4 1 0 0", "add b 4 1 0 0", "add c 1 1 0 0", NEXT, NEXT),
    History.read(sizes(2, 2), "add a 3 1 0 0", NEXT, NEXT, NEXT),
    History.read(sizes(4, 8, caching=True), "add a 8 1 0 0", NEXT, "add b 8 1 0 0", NEXT),
    History.read(sizes(4, 8), "add a 4 2 0 0 2", NEXT),
    History.read(  # of two sequences one has ended, and the other comes in again
        sizes(4, 2, mode="recompute"), "add a 4 2 0 0", NEXT, "end a 0", NEXT, NEXT, NEXT
    ),
    History.read(  # so it does here, and there is room for one beside b
        sizes(4, 2, max_seqs=2), "add a 1 2 0 0", NEXT, "end a 0", "add b 1 1 0 1", NEXT, NEXT, NEXT
    ),
)


class _PrefillsWorld(SchedulerWorld):
    exercise_id = "08-prefills"
    examples = EXAMPLES
    thoughts = (
        ("overtaking", _OvertakesLater),
        ("overtaking", _OvertakesBudget),
        ("overtaking", _OvertakesBoth),
        ("later-is-never", _LaterIsNever),
        ("never-is-later", _NeverIsLater),
        ("waits-before-never", _WaitsForBlocksFirst),
        ("waits-before-never", _WaitsForTheStepFirst),
        ("waits-before-never", _WaitsForBothFirst),
        ("ignored-keeps-its-place", _IgnoredStays),
        ("ignored-keeps-its-place", _IgnoredStaysAndStops),
        ("ignoring-ends-the-step", _IgnoringEndsTheStep),
        ("step-not-charged", _NothingCharged),
        ("step-not-charged", _TokensNotCharged),
        ("step-not-charged", _SeqsNotCharged),
        ("one-prompt-a-step", _OnePromptAStep),
        ("one-sequence-charged", _OneSequenceCharged),
        ("one-sequence-charged", _ThereCharged),
        ("output-forgotten", _PromptOnly),
        ("hits-not-charged", _HitsNotCharged),
        ("hits-not-charged", _HitsNotChargedToTheStep),
        ("newest-first", _NewestPromptFirst),
        ("stays-waiting", _StaysWaiting),
        ("stays-waiting", _FirstRuns),
        ("finished-counted", _FirstMeasured),
        ("finished-counted", _AllCharged),
        ("finished-counted", _AllRun),
        ("prompts-not-counted", _NoPrompts),
    )


STEP = step_of(
    "08-prefills",
    "who is let in",
    _PrefillsWorld,
    {
        "overtaking": "Nobody overtakes: the first prompt that has to wait ends the phase, or a long one would "
        "watch short ones take every block that comes free, and wait for ever.",
        "later-is-never": "LATER means that others hold the blocks now and will give them back: the request stays "
        "where it is, at the head of the queue, and only NEVER ends it.",
        "never-is-later": "A prompt that could not run even alone must not wait, since everybody behind it would "
        "wait with it, for ever: end it, report it, and go on with the next.",
        "waits-before-never": "Who could not run even alone is ended whatever the step has left: ask `_why_never` "
        "before anything that makes a request wait, or it waits, and everybody behind it with it.",
        "ignored-keeps-its-place": "A request that is ignored has ended, so it leaves the queue: take it off the "
        "head before you go on to the next one.",
        "ignoring-ends-the-step": "An ignored request takes nothing of the step, so those behind it need not wait "
        "for the next one: go on with the new head of the queue.",
        "step-not-charged": "`can_schedule` asks and charges nothing: every prompt that is let in has to be added "
        "to the budget, tokens and sequences, or the next one is measured against an empty step.",
        "one-prompt-a-step": "A step holds as many prompts as fit into its budget: go on from the new head of the "
        "queue until one has to wait.",
        "one-sequence-charged": "A prompt is charged the sequences that it is going to be, which "
        "`get_max_num_running_seqs()` knows: after the fork it is too late to find that they do not fit.",
        "output-forgotten": "A request that was recomputed comes with what it had generated: its prefill computes "
        "all its tokens, prompt and output, so all of them are charged.",
        "hits-not-charged": "Cached tokens are charged in full: what the cache holds is looked up after the "
        "decision, and the step is planned as if it held nothing.",
        "newest-first": "First come, first served: the request at the head of `waiting`, on its left, has waited "
        "longest and is looked at first.",
        "stays-waiting": "A request that has its blocks is RUNNING: without the status nothing after this step, "
        "neither the worker nor `append_slots`, finds its sequences.",
        "finished-counted": "What has ended of a request does not come in again with it: only its WAITING sequence is "
        "measured, charged, and RUNNING from now on.",
        "prompts-not-counted": "The engine takes the first `num_prefill_groups` of those scheduled for prompts: "
        "left at 0, whole prompts are treated as decodes of one token.",
    },
)
