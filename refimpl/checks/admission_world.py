"""Requests of all kinds that want to come in, beside the account: what chapter 05 plays histories on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from refimpl.checks.manager_comparison import Facts
from refimpl.checks.manager_world import GPU, ManagerWorld
from refimpl.checks.step import Operation, is_whole
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

REQUEST_KEEPS = "the request itself, its statuses and tokens, stays as it was"

WAITS, NOBODY, SWAPPED_OUT, RECOMPUTED = "", "nobody waits", "nobody waits, they are swapped out", "thrown out once"
FINISHED_FIRST, RUNNING_FIRST = "after one that has finished", "after one that runs"
KINDS = (RECOMPUTED, FINISHED_FIRST, RUNNING_FIRST, NOBODY, SWAPPED_OUT)

LOOKED_AT = ("get_block_table", "get_num_free_gpu_blocks", "get_num_free_cpu_blocks")  # after every operation


class AdmissionWorld(ManagerWorld):
    """Requests of all kinds: thrown out with half of their tokens produced, beside siblings that do not wait.

    One is told by its `number`, the `num_tokens` of each of its `num_seqs`, which `text` it is, and its kind.
    """

    changed = False  # whether the last call changed the request that it was given

    def kinds(self, num_tokens: int) -> Iterator[Operation]:
        """What follows the name of the operation, and its key if it has one."""
        for kind in KINDS:
            if num_tokens > 1 or kind != RECOMPUTED:
                yield num_tokens, 1 + (num_tokens + len(self.groups)) % 2, len(self.groups) % 2, kind

    def request_of(self, number: int, num_tokens: int, num_seqs: int, text: int, kind: str = WAITS) -> SequenceGroup:
        """The request of one operation."""
        group = self._request(number, num_tokens, num_seqs, text)
        seqs = group.get_seqs()
        if kind == RECOMPUTED:
            cut = (num_tokens + 1) // 2
            again = [Sequence(seq.seq_id, seq.get_token_ids()[:cut], self.block_size) for seq in seqs]
            for seq, whole in zip(again, seqs, strict=True):
                for token_id in whole.get_token_ids(cut):
                    seq.append_token_id(token_id)
            return SequenceGroup(group.request_id, again)
        if kind in (FINISHED_FIRST, RUNNING_FIRST):
            sibling = Sequence(100 * number + 50, seqs[0].get_token_ids(), self.block_size)
            for token_id in range(2 * self.block_size):
                sibling.append_token_id(token_id)
            ended = kind == FINISHED_FIRST
            sibling.status = SequenceStatus.FINISHED_STOPPED if ended else SequenceStatus.RUNNING
            return SequenceGroup(group.request_id, [sibling, *seqs])
        if kind in (NOBODY, SWAPPED_OUT):
            self._set_status(seqs, SequenceStatus.RUNNING if kind == NOBODY else SequenceStatus.SWAPPED)
        return group

    def words(self, num_tokens: int, num_seqs: int, text: int, kind: str = WAITS) -> str:
        """The request as the learner reads it."""
        parts = [f"num_tokens={num_tokens}"]
        parts += [f"num_seqs={num_seqs}"] * (num_seqs > 1) + [f"text={text}"] * self.account.caching
        more = {
            RECOMPUTED: f"num_output_tokens={num_tokens // 2}",
            FINISHED_FIRST: f"finished=[{num_tokens + 2 * self.block_size} tokens]",
            RUNNING_FIRST: f"running=[{num_tokens + 2 * self.block_size} tokens]",
            NOBODY: "status=RUNNING",
            SWAPPED_OUT: "status=SWAPPED",
        }
        return f"request({', '.join(parts + [said for name, said in more.items() if name == kind])})"

    def facts_of(self, group: SequenceGroup) -> Facts:
        """The numbers that sentences speak of."""
        waiting = group.get_seqs(SequenceStatus.WAITING) or group.get_seqs()
        first, any_first = waiting[0], group.get_seqs()[0]
        required = self.account.required(first.get_len())
        return {
            "num_seqs": len(waiting),
            "num_others": len(group.get_seqs()) - len(waiting),
            "num_tokens": first.get_len(),
            "required": required,
            "of_prompt": self.account.required(first.get_prompt_len()),
            "of_first": self.account.required(any_first.get_len()),
            "first_status": any_first.status.name,
            "known": required - self._num_missing(first),
            "free": self.account.free(GPU),
            "total": self.account.total[GPU],
            "reserved": self.account.watermark_blocks,
        }

    def _num_missing(self, seq: Sequence) -> int:
        """Blocks of the sequence that nobody holds now, by the tables of everybody else."""
        if not self.account.caching:
            return self.account.required(seq.get_len())
        tokens, size = tuple(seq.get_token_ids()), self.block_size
        held = {block.content for table in self.account.tables.values() for block in table}
        return sum(tokens[: (i + 1) * size] not in held for i in range(self.account.required(len(tokens))))

    def _watched(self, function: Any) -> Callable[..., Any]:
        """The function, and whether a request that it is given is afterwards still what it was."""

        def call(*arguments: Any) -> Any:
            groups = [argument for argument in arguments if isinstance(argument, SequenceGroup)]
            before = [_as_it_is(group) for group in groups]
            try:
                return function(*arguments)
            finally:
                self.changed = before != [_as_it_is(group) for group in groups]

        return call

    def _call(self, line: str, function: Any, *arguments: Any, facts: Facts) -> Any:
        return super()._call(line, self._watched(function), *arguments, facts=facts)

    def _refuse(self, line: str, function: Any, *arguments: Any, facts: Facts) -> None:
        super()._refuse(line, self._watched(function), *arguments, facts=facts)

    def _compare(self, facts: Facts, keeps: str = "") -> None:
        super()._compare(facts, keeps)
        if self.operation[0] in ("can_allocate", "allocate"):
            should = "the request's sequences and their statuses should stay as they were"
            self.log.hold(REQUEST_KEEPS, not self.changed, should, "something in it has changed", "request-changed")


def alone(seq_id: int, tokens: range, block_size: int) -> SequenceGroup:
    """A request of one sequence of these tokens."""
    return SequenceGroup(f"request {seq_id}", [Sequence(seq_id, tokens, block_size)])


def _as_it_is(group: SequenceGroup) -> list[tuple[int, SequenceStatus, list[int]]]:
    return [(seq.seq_id, seq.status, seq.get_token_ids()) for seq in group.get_seqs()]


def is_number(value: Any) -> bool:
    """Whether it is a whole number, and no bool."""
    return is_whole(value) and not isinstance(value, bool)
