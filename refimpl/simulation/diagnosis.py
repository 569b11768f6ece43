"""What a person on call works out: from a scheduler's log, about a victim, for a block size, behind a cached block.

Each class answers one question of the troubleshooting chapter and can be written in a few lines; none changes what it
is shown. The scheduler chooses victims and the block manager finds content with code of their own; tests hold the
answers here to theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from refimpl.block import num_required_blocks
from refimpl.scheduler import SPEED_WINDOW, Decision, Scheduler, SchedulerOutputs
from refimpl.sequence import SequenceGroup

COMES_IN = ("prefill", "swap in")
"""Actions of a `Decision` by which a request gets GPU blocks."""
IS_SENT_AWAY = ("recompute", "swap out")
"""Actions by which a running request makes room for others, to come back later."""


def num_prefill_tokens(decision: Decision) -> int:
    """Tokens that a "prefill" computes: its reason begins with their number.

    >>> num_prefill_tokens(Decision("a", "prefill", "35 tokens", 5, 0, 0, 0, 1, 0))
    35
    """
    return int(decision.reason.split()[0])


class DecisionLog:
    """A scheduler's decisions, a list for each step. Invariant: reading it changes nothing.

    The log may begin when requests run already, and end before they do. An instance is an `on_step` of
    `Simulator.run`, and collects the run.

    Args:
        steps: decisions of each step, the first step first; more are added by calling the log.

    >>> def decision(action, reason=""):
    ...     return Decision("a", action, reason, 0, 0, 0, 0, 0, 0)
    >>> first, away, again = decision("prefill", "35 tokens"), decision("recompute"), decision("prefill", "38 tokens")
    >>> log = DecisionLog([[first], [], [], [away], [], [again]])
    >>> log.short_stays(within=3), log.recomputed_tokens(), log.longest_absences()
    ({'a': 1}, 37, {'a': 2})
    """

    __slots__ = ("steps",)

    def __init__(self, steps: Iterable[Iterable[Decision]] = ()) -> None:
        self.steps = [list(decisions) for decisions in steps]

    def __call__(self, scheduler: Scheduler, outputs: SchedulerOutputs, now: float) -> None:
        """Add a step that has just been decided."""
        self.steps.append(list(outputs.decisions))

    def short_stays(self, within: int) -> dict[str, int]:
        """How often each request was sent away at most `within` steps after it had come in.

        A stay whose beginning is not in the log is not counted; neither is a request without a short stay.
        """
        came_in: dict[str, int] = {}  # request_id -> step
        found: dict[str, int] = {}
        for step, decisions in enumerate(self.steps):
            for decision in decisions:
                name = decision.request_id
                if decision.action in COMES_IN:
                    came_in[name] = step
                elif decision.action in IS_SENT_AWAY and name in came_in:
                    stay = step - came_in.pop(name)
                    if stay <= within:
                        found[name] = found.get(name, 0) + 1
        return found

    def recomputed_tokens(self) -> int:
        """Tokens whose keys and values were computed, dropped, and computed again.

        They are those of each prefill after a recompute, but for the newest: its keys and values had
        not been computed when the request was sent away.
        """
        dropped: set[str] = set()
        tokens = 0
        for decisions in self.steps:
            for decision in decisions:
                if decision.action == "recompute":
                    dropped.add(decision.request_id)
                elif decision.action == "prefill" and decision.request_id in dropped:
                    dropped.remove(decision.request_id)
                    tokens += num_prefill_tokens(decision) - 1
        return tokens

    def longest_absences(self) -> dict[str, int]:
        """The most steps in a row that each request spent away, for those that were sent away.

        An absence ends when the request comes in again, or is ended as ignored. One that has not
        ended yet lasts up to the end of the log.
        """
        left: dict[str, int] = {}  # request_id -> step
        longest: dict[str, int] = {}
        for step, decisions in enumerate(self.steps):
            for decision in decisions:
                name = decision.request_id
                if decision.action in IS_SENT_AWAY:
                    left[name] = step
                elif decision.action in (*COMES_IN, "ignore") and name in left:
                    longest[name] = max(longest.get(name, 0), step - left.pop(name))
        for name, step in left.items():
            longest[name] = max(longest.get(name, 0), len(self.steps) - step)
        return longest


class LongestSlowest:
    """Chooses who makes room as `policy="longest-slowest"` does: the most tokens, then the slowest of late.

    Owns what was seen of each request. Invariant: of a request the last 16 notes are kept, oldest first.

    >>> from refimpl import Sequence, SequenceGroup
    >>> groups = [SequenceGroup(name, [Sequence(i, [7] * 8, 4)]) for i, name in enumerate("ab")]
    >>> policy = LongestSlowest()
    >>> policy.note(groups[0], now=1.0)
    >>> groups[0].seqs[0].append_token_id(7)
    >>> policy.total_len(groups[0]), policy.speed(groups[0], now=1.5), policy.choose(groups, now=1.5).request_id
    (9, 2.0, 'a')
    """

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen: dict[str, deque[tuple[float, int]]] = {}  # request_id -> (time, total_len), of its last steps

    def note(self, seq_group: SequenceGroup, now: float) -> None:
        """The group runs in a step that begins now."""
        notes = self.seen.setdefault(seq_group.request_id, deque(maxlen=SPEED_WINDOW))
        notes.append((now, self.total_len(seq_group)))

    def total_len(self, seq_group: SequenceGroup) -> int:
        """Tokens of all the group's unfinished sequences."""
        return sum(seq.get_len() for seq in seq_group.get_unfinished_seqs())

    def speed(self, seq_group: SequenceGroup, now: float) -> float:
        """Tokens a second since the oldest note; 0 without a note, or where no time has passed."""
        notes = self.seen.get(seq_group.request_id)
        if not notes or now <= notes[0][0]:
            return 0.0
        time, tokens = notes[0]
        return (self.total_len(seq_group) - tokens) / (now - time)

    def choose(self, queue: list[SequenceGroup], now: float) -> SequenceGroup:
        """The group of `queue` that is to make room; of several alike the one that stands first."""
        return max(queue, key=lambda seq_group: (self.total_len(seq_group), -self.speed(seq_group, now)))


class BlockSizes:
    """What block sizes cost for requests of these lengths. Invariant: costs are bytes, for all requests together.

    Args:
        lengths: tokens of each request.
        slot_bytes: room for the keys and values of one token.
        block_bytes: what one block costs besides its slots, said in bytes: an entry in a table takes a few; the start
            of a copy takes time in which so many bytes could have been moved.

    >>> sizes = BlockSizes([35, 64], slot_bytes=100, block_bytes=1000)
    >>> [sizes.cost(block_size) for block_size in (16, 32, 64)], sizes.pick([16, 32, 64])
    ([8300, 6900, 4900], 64)
    """

    __slots__ = ("lengths", "slot_bytes", "block_bytes")

    def __init__(self, lengths: Iterable[int], slot_bytes: int, block_bytes: int) -> None:
        self.lengths = list(lengths)
        self.slot_bytes = slot_bytes
        self.block_bytes = block_bytes

    def cost(self, block_size: int) -> int:
        """Bytes of the empty slots in the requests' last blocks, and of what their blocks cost besides."""
        total = 0
        for length in self.lengths:
            num_blocks = num_required_blocks(length, block_size)
            total += (num_blocks * block_size - length) * self.slot_bytes + num_blocks * self.block_bytes
        return total

    def pick(self, candidates: list[int]) -> int:
        """The block size that costs least; of several the largest.

        Raises:
            ValueError: without a candidate.
        """
        return min(candidates, key=lambda block_size: (self.cost(block_size), -block_size))


HashFunction: TypeAlias = Callable[["int | None", "tuple[int, ...]"], int]
"""The hash of a block: of what stands before it, and of its tokens."""


class BlockIndex:
    """Finds the block of a content by a hash that may collide. Invariant: what is found has exactly that content.

    A block's content is its tokens and everything before them; `prefix` is the number of the block before, None for
    the first. (A block that is given new content would have to leave the index; none is here.)

    >>> index = BlockIndex(lambda prefix, token_ids: sum(token_ids) % 8)
    >>> index.add(None, (1, 7), block=0)
    >>> index.add(None, (2, 6), block=1)
    >>> index.find(None, (1, 7)), index.find(None, (2, 6)), index.find(None, (3, 5)), index.find(0, (1, 7))
    (0, 1, None, None)
    """

    __slots__ = ("hash_function", "buckets")

    def __init__(self, hash_function: HashFunction) -> None:
        self.hash_function = hash_function
        self.buckets: dict[int, list[tuple[int | None, tuple[int, ...], int]]] = {}  # hash -> (prefix, tokens, block)

    def find(self, prefix: int | None, token_ids: tuple[int, ...]) -> int | None:
        """The block with these tokens behind this prefix; None when there is none."""
        for known_prefix, known_ids, block in self.buckets.get(self.hash_function(prefix, token_ids), []):
            if known_prefix == prefix and known_ids == token_ids:
                return block
        return None

    def add(self, prefix: int | None, token_ids: tuple[int, ...], block: int) -> None:
        """`block` holds these tokens behind this prefix from now on; no other block does."""
        bucket = self.buckets.setdefault(self.hash_function(prefix, token_ids), [])
        bucket.append((prefix, token_ids, block))
