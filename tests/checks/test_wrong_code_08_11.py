"""Answers to chapters 8 and 11 that no misconception stands for: they are wrong all the same, and told no thought.

Each is the solution with a change of a line or two. Some are right until a request that has ended, that is full or that
came twice is looked at; some do what a misconception does as long as only one history is seen.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from refimpl import proof
from refimpl.checks import steps
from refimpl.checks.engine import examine

ROOT = Path(__file__).parents[2]
BUDGET = "SchedulingBudget(config.max_num_batched_tokens, config.max_num_seqs)"

CHANGES = {
    "preempted counts those swapped out before": (
        "08-preempt",
        "outputs.preempted += 1",
        "outputs.preempted = len(recomputed) + len(self.swapped)",
    ),
    "an unforked prompt of two is one": (
        "08-preempt",
        "seq_group.get_max_num_running_seqs() > 1",
        "seq_group.get_max_num_running_seqs() > 2",
    ),
    "an unforked prompt is computed again for want of room": (
        "08-preempt",
        "elif self.block_manager.can_swap_out(seq_group):",
        "elif seq_group.num_seqs() == 1 and self.scheduler_config.preemption_mode is None and (\n"
        "        not self.block_manager.can_swap_out(seq_group)\n"
        "    ):\n"
        "        (seq,) = seq_group.get_unfinished_seqs()\n"
        "        seq.status = SequenceStatus.WAITING\n"
        "        self.free_seq(seq)\n"
        "        seq.reset_state_for_recompute()\n"
        "        recomputed.append(seq_group)\n"
        "    elif self.block_manager.can_swap_out(seq_group):",
    ),
    "who comes back is not measured": (
        "08-swapped",
        " or not budget.can_schedule(num_new_tokens, num_new_seqs)",
        "",
    ),
    "sequences that come back are not measured": (
        "08-swapped",
        "can_schedule(num_new_tokens, num_new_seqs)",
        "can_schedule(num_new_tokens, 0)",
    ),
    "a full step asks for no prompt": (
        "08-schedule",
        "if not self.swapped:",
        "if not self.swapped and budget.num_curr_seqs < budget.max_num_seqs:",
    ),
    "nobody comes back beside a copy": (
        "08-schedule",
        "if not (outputs.preempted or",
        "if not (outputs.blocks_to_copy or outputs.preempted or",
    ),
    "nobody comes back while a prompt waits": (
        "08-schedule",
        "if not (outputs.preempted or",
        "if not (self.waiting or outputs.preempted or",
    ),
    "the swapped have a step of their own": (
        "08-schedule",
        "self._schedule_swapped(budget, outputs)",
        f"taken, budget = budget.num_batched_tokens, {BUDGET}; budget.add(taken, 0); "
        "self._schedule_swapped(budget, outputs)",
    ),
    "the reason of the first for all": (
        "11-step",
        "why_given_up(outputs, group)",
        "why_given_up(outputs, given_up[0])",
    ),
    "one token short of the model's length": (
        "11-step",
        "seq.get_len() >= self.max_model_len",
        "seq.get_len() >= self.max_model_len - 1",
    ),
    "returns the first that ended": (
        "11-step",
        "if s.seq_group.is_finished()]",
        "if s.seq_group.is_finished()][:1]",
    ),
    "returns those given up, or those that ended": (
        "11-step",
        "return given_up +",
        "return given_up or",
    ),
    "returns a request of which one answer has ended": (
        "11-step",
        "if s.seq_group.is_finished()]",
        "if any(seq.is_finished() for seq in s.seq_group.get_seqs())]",
    ),
    "a request is known by its prompt": (
        "11-generate",
        "for group in groups\n",
        "for group in [{str(g.seqs[0].prompt_token_ids): g for g in groups}[str(prompt)] for prompt in prompts]\n",
    ),
    "two answers at most": (
        "11-generate",
        "for seq in group.get_seqs()]",
        "for seq in group.get_seqs()[:2]]",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_it_is_wrong_and_told_no_thought(what: str) -> None:
    exercise_id, right, wrong = CHANGES[what]
    step = steps()[exercise_id]
    chapter = proof.Chapter(ROOT, exercise_id[:2])
    (cell,) = (cell for cell in chapter.solved if cell.grade_id in chapter.answers_of(step) and right in cell.source)
    names = chapter.solution()
    exec(cell.source.replace(right, wrong), names)
    result = examine(step, names[step.subject])
    assert (result.outcome, result.misconception) == ("wrong", None), result.sentence
    assert result.points < result.max_points


def test_a_step_that_raised_has_given_nobody_a_token() -> None:
    step = steps()["11-step"]
    chapter = proof.Chapter(ROOT, "11")
    (source,) = (cell.source for cell in chapter.solved if "next(rows)" in cell.source)
    names = chapter.solution()
    exec(source.replace("next(rows)", "[next(rows)][seq.get_output_len() // 3]"), names)
    result = examine(step, names[step.subject])
    assert result.outcome == "raised"
    held = len(step.properties) - 2  # no token, and nobody returned
    assert result.points == round(step.points * held / (len(step.properties) + 1), 2)
