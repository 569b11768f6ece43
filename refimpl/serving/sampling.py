"""From logits to one token a sequence. Pure functions: randomness comes in as a generator for each request."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from refimpl.sequence import SamplingParams

SAMPLING_EPS = 1e-5  # temperatures below this are greedy: logits divided by so little leave the range of float32


def sample(
    logits: Tensor, sampling_params: Sequence[SamplingParams], generators: Sequence[torch.Generator]
) -> list[int]:
    """Choose the next token of each sequence.

    Args:
        logits: [num_seqs, vocab_size].
        sampling_params: of each sequence; a temperature below SAMPLING_EPS takes the largest logit.
        generators: of each sequence, so that what others ask for changes nothing.

    Returns:
        num_seqs token ids.

    >>> greedy = SamplingParams(temperature=0)
    >>> sample(torch.tensor([[0.0, 2.0, 1.0]]), [greedy], [torch.Generator()])
    [1]

    Source: vLLM 0.5.4, `vllm/model_executor/layers/sampler.py`, `Sampler`.
    """
    tokens = _largest(logits)
    for row, (params, generator) in enumerate(zip(sampling_params, generators, strict=True)):
        if params.temperature >= SAMPLING_EPS:
            tokens[row] = _draw(logits[row].cpu(), params, generator)  # where the generators are
    return tokens


def _largest(logits: Tensor) -> list[int]:
    """The token of the largest logit in each row; on a CPU by numpy, which takes a seventh of torch's time."""
    on_cpu = logits.device.type == "cpu" and logits.dtype == torch.float32
    largest: list[int] = (logits.numpy().argmax(axis=-1) if on_cpu else logits.argmax(dim=-1)).tolist()
    return largest


def logprobs_of(logits: Tensor, tokens: Sequence[int], sampling_params: Sequence[SamplingParams]) -> list[float]:
    """How likely each sequence's token was, as a natural logarithm, at its temperature; top_p does not count.

    Args:
        logits: [num_seqs, vocab_size].
        tokens: one of each sequence.
        sampling_params: of each sequence; a greedy choice counts at temperature 1.

    >>> round(logprobs_of(torch.tensor([[0.0, 0.0]]), [1], [SamplingParams()])[0], 3)
    -0.693
    """
    temperatures = torch.tensor([p.temperature if p.temperature >= SAMPLING_EPS else 1.0 for p in sampling_params])
    scaled = logits.float() / temperatures.to(logits.device)[:, None]
    chosen = scaled.gather(1, torch.tensor(tokens, device=logits.device)[:, None])[:, 0]
    logprobs: list[float] = (chosen - scaled.logsumexp(dim=-1)).tolist()
    return logprobs


def _draw(logits: Tensor, params: SamplingParams, generator: torch.Generator) -> int:
    """One draw from the smallest set of tokens whose probability reaches top_p."""
    probabilities, tokens = (logits.float() / params.temperature).softmax(dim=-1).sort(descending=True, stable=True)
    before = probabilities.cumsum(dim=-1) - probabilities
    kept = torch.where(before < params.top_p, probabilities, 0.0)
    kept[0] = probabilities[0]  # even where top_p is so small that float32 makes it 0
    return int(tokens[torch.multinomial(kept, 1, generator=generator)])
