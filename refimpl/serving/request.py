"""One request on its way through the engine: its branches, what their text has grown to, and when they end.

A branch is one answer in the making. It owns its random generator and its text; its tokens are its sequence's, its
memory the block manager's. Branch i of a request with a seed is the single answer of the same request with seed + i.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from refimpl.sequence import SamplingParams, Sequence, SequenceGroup, SequenceStatus
from refimpl.serving.outputs import CompletionOutput, RequestOutput
from refimpl.serving.tokenizer import IncrementalDetokenizer

SEED_BITS = 64  # of a branch's generator

_FINISH_REASONS = {
    SequenceStatus.FINISHED_STOPPED: "stop",
    SequenceStatus.FINISHED_LENGTH_CAPPED: "length",
    SequenceStatus.FINISHED_ABORTED: "abort",
    SequenceStatus.FINISHED_IGNORED: "length",
}


@dataclass(slots=True)
class Branch:
    """One answer. Its text is worked out when it is read, unless a stop string has to be looked for.

    detokenizer: makes text of its tokens, and holds back half a character. cumulative_logprob: of its answer so far.
    """

    seq: Sequence
    generator: torch.Generator
    detokenizer: IncrementalDetokenizer
    stop: tuple[str, ...] = ()
    block_table: list[int] = field(default_factory=list)
    cumulative_logprob: float = 0.0
    stop_reason: int | str | None = None
    _text: str = ""
    _num_decoded: int = 0  # output tokens whose text is in _text, or held back by the detokenizer

    def fork(self, seq: Sequence, generator: torch.Generator) -> Branch:
        """The same answer so far, for another sequence with a generator of its own."""
        detokenizer, block_table = self.detokenizer.fork(), list(self.block_table)
        return replace(self, seq=seq, generator=generator, detokenizer=detokenizer, block_table=block_table)

    def text(self) -> str:
        """All that is certain: whole characters, and nothing that may turn out to be a stop string."""
        self._decode()
        if self.seq.is_finished():
            return self._text
        held_back = max((_overlap(self._text, stop) for stop in self.stop), default=0)
        return self._text[: len(self._text) - held_back]

    def status_after(
        self, token: int, params: SamplingParams, eos: tuple[int, ...], max_model_len: int
    ) -> SequenceStatus:
        """Whether the answer ends with the token that it has just got, one of `eos` or what `params` say of its end."""
        if token in params.stop_token_ids or (token in eos and not params.ignore_eos):
            self.stop_reason = token if token in params.stop_token_ids else None
            return SequenceStatus.FINISHED_STOPPED
        if self.stop and self._cut_at_stop_string():
            return SequenceStatus.FINISHED_STOPPED
        if self.seq.get_output_len() >= params.max_tokens or self.seq.get_len() >= max_model_len:
            return SequenceStatus.FINISHED_LENGTH_CAPPED
        return SequenceStatus.RUNNING

    def finish(self, status: SequenceStatus) -> None:
        """End the answer; what the detokenizer still holds back belongs to it, unless a stop string cut it off."""
        self.seq.status = status
        if not isinstance(self.stop_reason, str):
            self._decode()
            self._text += self.detokenizer.finish()

    def _decode(self) -> None:
        """Bring the text up to the tokens."""
        num_tokens = self.seq.get_output_len()
        if not isinstance(self.stop_reason, str) and self._num_decoded < num_tokens:
            new = self.seq.get_token_ids(self.seq.get_prompt_len() + self._num_decoded)
            self._text += self.detokenizer.add(*new)
            self._num_decoded = num_tokens

    def _cut_at_stop_string(self) -> bool:
        """Look for the first stop string in what the last token has added; cut the text in front of it."""
        searched = len(self._text)
        self._decode()
        found = []
        for stop in self.stop:
            position = self._text.find(stop, max(searched - len(stop) + 1, 0))
            if position >= 0:
                found.append((position, stop))
        if found:
            position, self.stop_reason = min(found)
            self._text = self._text[:position]
        return bool(found)


@dataclass(slots=True)
class Request:
    """A group and its branches by seq_id: one until its prompt has been computed, then all of them.

    error: why it could not run, None when it could.
    """

    group: SequenceGroup
    prompt: str | None
    sampling_params: SamplingParams
    branches: dict[int, Branch]
    error: str | None = None

    def num_blocks(self, status: SequenceStatus) -> int:
        """Blocks that the branches of this status have lain in last, those that they share counted once."""
        return len({block for b in self.branches.values() if b.seq.status is status for block in b.block_table})

    def output(self) -> RequestOutput:
        """The request as far as it has come: the best n branches, if more are generated than asked for."""
        params = self.sampling_params
        branches = list(self.branches.values())
        if params.num_candidates > params.n:
            branches = sorted(branches, key=lambda branch: -branch.cumulative_logprob)[: params.n]
        first = next(iter(self.branches.values()))
        return RequestOutput(
            request_id=self.group.request_id,
            prompt=self.prompt,
            prompt_token_ids=first.seq.prompt_token_ids,
            outputs=[_completion(index, branch) for index, branch in enumerate(branches)],
            finished=self.group.is_finished(),
            error=self.error,
        )


def _completion(index: int, branch: Branch) -> CompletionOutput:
    return CompletionOutput(
        index=index,
        text=branch.text(),
        token_ids=branch.seq.output_token_ids,
        finish_reason=_FINISH_REASONS.get(branch.seq.status),
        block_table=branch.block_table,
        stop_reason=branch.stop_reason,
    )


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of the text with which the stop string may have begun.

    >>> _overlap("so it en", "end"), _overlap("so it", "end")
    (2, 0)
    """
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
