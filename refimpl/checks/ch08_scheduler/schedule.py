"""08-schedule: the three phases.

Prompts or decodes and never both; and nobody comes back in a step in which somebody had to make room.
"""

from __future__ import annotations

from refimpl.checks.scheduler_account import SchedulerAccount
from refimpl.checks.scheduler_world import NEXT, SchedulerWorld, sizes, step_of
from refimpl.checks.step import History


class _PrefillBeside(SchedulerAccount):
    def lets_in(self) -> bool:
        return True


class _RunningNotCharged(SchedulerAccount):
    def running_seqs(self) -> int:
        return 0


class _GroupsCharged(SchedulerAccount):
    def running_seqs(self) -> int:
        return len(self.running)


class _UnfinishedCharged(SchedulerAccount):
    def running_seqs(self) -> int:
        return sum(len(request.unfinished) for request in self.running)


class _MixedStep(SchedulerAccount):
    def all_phases(self) -> None:
        if self.lets_in():
            self.prefill()
        self.decode()
        if self.brings_back():
            self.come_back()


class _BackAfterAll(SchedulerAccount):
    def brings_back(self) -> bool:
        return True


class _BackAfterPreemption(SchedulerAccount):
    def brings_back(self) -> bool:
        return not self.now.aborted


class _BackAfterAbort(SchedulerAccount):
    def brings_back(self) -> bool:
        return not self.now.preempted


class _DecodeFirst(SchedulerAccount):
    def all_phases(self) -> None:
        self.decode()
        if self.brings_back():
            self.come_back()
        if not self.now.scheduled and self.lets_in():
            self.prefill()


class _BackFirst(SchedulerAccount):
    def all_phases(self) -> None:
        if self.lets_in():
            self.prefill()
        if not self.now.scheduled:
            self.come_back()
            self.decode()


class _BackIfIdle(SchedulerAccount):
    def brings_back(self) -> bool:
        return not self.now.scheduled and super().brings_back()


class _TokensNotReported(SchedulerAccount):
    def step(self) -> None:
        super().step()
        self.now.num_tokens = 0


class _ModelLenBudget(SchedulerAccount):
    def fits(self, num_tokens: int, num_seqs: int) -> bool:
        return self.now.num_tokens + num_tokens <= self.limits.max_model_len and super().fits(num_tokens, num_seqs)


EXAMPLES = (
    History.read(sizes(4, 8), "add a 5 1 0 0", NEXT, "add b 3 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 5, 8), "add a 4 1 0 0", "add b 6 3 0 0", NEXT, NEXT, "add c 1 1 0 0", NEXT),
    History.read(sizes(4, 8, max_seqs=2), "add a 4 1 0 0", "add b 4 1 0 0", NEXT, "add c 1 1 0 0", NEXT),
    History.read(sizes(4, 8, max_seqs=3), "add a 4 2 0 0", NEXT, "add b 4 2 0 0", NEXT),
    History.read(sizes(4, 8, max_seqs=2), "add a 4 2 0 0", "schedule 2", "add b 1 1 0 0", NEXT),
    History.read(sizes(4, 6, 12, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", "add c 8 1 0 0", NEXT, NEXT, NEXT),
    History.read(sizes(4, 2, 2, mode="swap"), "add a 8 1 0 0", NEXT, NEXT),
    History.read(sizes(4, 6, 2, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", "add c 8 1 0 0", NEXT, NEXT, NEXT),
    History.read(sizes(4, 4, 8, mode="swap"), "add a 8 1 0 0", "add b 8 1 0 0", NEXT, NEXT, "abort a", NEXT),
    History.read(sizes(4, 8, max_seqs=4, max_len=8, max_tokens=12), "add a 8 1 0 0", "add b 4 1 0 0", NEXT),
    History.read(sizes(4, 8, max_seqs=1, max_len=8), "add a 4 1 0 0", NEXT, "add b 9 1 0 0", NEXT),
    History.read(  # b can never come back, beside a copy
        sizes(4, 3, 2, mode="swap"), "add a 1 1 0 0", "add b 5 2 0 0", NEXT, NEXT, "fork a 0", NEXT
    ),
    History.read(  # c comes back beside a, and nothing is copied and nobody waits
        sizes(4, 5, 8, mode="swap"),
        *("add a 1 1 0 0", "add b 4 1 0 0", "add c 12 1 0 0", NEXT, NEXT, "abort b", NEXT),
    ),
    History.read(  # c would come back beside a, but a alone fills the step
        sizes(4, 6, 8, mode="swap", max_seqs=4),
        *("add a 2 2 0 0", "add b 16 1 0 0", "add c 2 1 0 0", NEXT, NEXT, "abort b", "fork a 0", "fork a 0", NEXT),
    ),
)


class _ScheduleWorld(SchedulerWorld):
    exercise_id = "08-schedule"
    examples = EXAMPLES
    thoughts = (
        ("prompts-beside-the-swapped", _PrefillBeside),
        ("running-not-charged", _RunningNotCharged),
        ("requests-charged", _GroupsCharged),
        ("unforked-prompt-is-one", _UnfinishedCharged),
        ("prompts-and-decodes-mixed", _MixedStep),
        ("back-after-preemption", _BackAfterAll),
        ("back-after-preemption", _BackAfterPreemption),
        ("back-after-abort", _BackAfterAbort),
        ("decode-first", _DecodeFirst),
        ("swapped-before-running", _BackFirst),
        ("back-only-if-idle", _BackIfIdle),
        ("tokens-not-reported", _TokensNotReported),
        ("longest-sequence-as-budget", _ModelLenBudget),
    )


STEP = step_of(
    "08-schedule",
    "the three phases",
    _ScheduleWorld,
    {
        "prompts-beside-the-swapped": "No prompt comes in while anybody is swapped out: it would take the blocks "
        "that the swapped ones, who came before it, are waiting for.",
        "running-not-charged": "Sequences that run already take their part of `max_num_seqs`: charge them before "
        "the first prompt is measured, or more run than a step may hold.",
        "requests-charged": "`max_num_seqs` counts sequences: each running request is charged what "
        "`get_max_num_running_seqs()` says, not 1.",
        "unforked-prompt-is-one": "A running request is charged what it is going to be: "
        "`get_max_num_running_seqs()` counts a prompt that has not been forked yet as all its sequences.",
        "prompts-and-decodes-mixed": "A step is prompts or decodes and never both: when a prompt was scheduled, "
        "the running ones wait for the next step.",
        "back-after-preemption": "Where somebody has just made room there is none to give away: in a step that "
        "preempted, nobody comes back.",
        "back-after-abort": "A request that could not be saved was the sign of too little room, as a preemption "
        "is: in such a step nobody comes back either.",
        "decode-first": "Prompts go first: the running requests get their turn in the first step in which no "
        "prompt can come in.",
        "swapped-before-running": "The running ones get their slots first, and only then is it known whether "
        "anything is left for those who want to come back.",
        "back-only-if-idle": "Who comes back runs beside those who stayed, in one step of decodes: what keeps it "
        "away is a preemption, and not that others run.",
        "tokens-not-reported": "`outputs.num_batched_tokens` says how many tokens the step computes: the budget "
        "has counted them, so hand the count on.",
        "longest-sequence-as-budget": "How long a sequence may get and how much a step may hold are two limits: "
        "the budget of a step is `max_num_batched_tokens`.",
    },
)
