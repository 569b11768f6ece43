"""What the engine tells its caller: plain records under vLLM's names, complete in themselves at every step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CompletionOutput:
    """One generated answer, as far as it has come. (vLLM 0.5.4: `vllm/outputs.py`, `CompletionOutput`.)

    index: which of the request's answers it is, from 0. text: never ends inside a character until it is finished.
    token_ids: the generated ones. finish_reason: "stop" at an end token, "length" at a
    limit, "abort", or None while it grows. block_table: the blocks that it has lain in, logical block 0 first.
    stop_reason: the stop string or stop token that ended it, None for the model's own end token.
    """

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str | None
    block_table: list[int]
    stop_reason: int | str | None = None


@dataclass(slots=True)
class RequestOutput:
    """One request, as far as it has come. (vLLM 0.5.4: `vllm/outputs.py`, `RequestOutput`.)

    request_id: the caller's name for it. prompt: the text, None when token ids were given. prompt_token_ids: the tokens
    of the prompt either way. finished: whether no answer grows any more. error: why the request could not run, None
    when it could.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    error: str | None = None
