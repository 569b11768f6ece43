"""Many requests through one block manager: admit, compute a step, choose tokens, free what has finished.

The engine owns the block manager, the cache and the queues. Invariant between two steps: a running sequence has a
block table with room for all its tokens but the newest, which the next step makes room for and computes. Requests
wait in order of arrival and none overtakes; without preemption, a pool that runs full is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from pathlib import Path

import torch

from refimpl.block_manager import AllocStatus, BlockSpaceManager
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.device.kv_cache import KVCache
from refimpl.sequence import SamplingParams, Sequence, SequenceGroup, SequenceStatus
from refimpl.serving.llama import Llama, LlamaConfig
from refimpl.serving.model_runner import prepare_step
from refimpl.serving.outputs import CompletionOutput, RequestOutput
from refimpl.serving.sampling import sample
from refimpl.serving.tokenizer import IncrementalDetokenizer, Tokenizer
from refimpl.serving.weights import LoadedModel, load_model

Prompt = str | Mapping[str, list[int]]  # a text, or {"prompt_token_ids": [...]}

_SEED_BITS = 64  # of a request's generator; the upper half is the engine's seed, the lower numbers its requests

HOST_KV_BYTES = 1 << 30  # without a GPU, what the pool takes its share of: laptops have this to spare

_FINISH_REASONS = {
    SequenceStatus.FINISHED_STOPPED: "stop",
    SequenceStatus.FINISHED_LENGTH_CAPPED: "length",
    SequenceStatus.FINISHED_ABORTED: "abort",
    SequenceStatus.FINISHED_IGNORED: "length",
}


@dataclass(slots=True)
class _Request:
    """A request on its way: one sequence, and what its text has grown to."""

    group: SequenceGroup
    seq: Sequence
    prompt: str | None
    sampling_params: SamplingParams
    generator: torch.Generator
    detokenizer: IncrementalDetokenizer
    text: str = ""
    block_table: list[int] = field(default_factory=list)
    error: str | None = None


class LLMEngine:
    """Runs requests a step at a time.

    Args:
        model: network and tokenizer.
        cache_config: with `num_gpu_blocks` known.
        scheduler_config: the limits of a step and of a sequence.
        seed: for requests that bring no seed of their own, 0 to 2**32 - 1.

    Raises:
        ValueError: for a pool of unknown size or one that memory cannot hold, a max_model_len beyond the pool or the
            model, or a seed that is negative or has more than 32 bits.

    Source: vLLM 0.5.4, `vllm/engine/llm_engine.py`, `LLMEngine`.
    """

    def __init__(
        self, model: LoadedModel, cache_config: CacheConfig, scheduler_config: SchedulerConfig, *, seed: int = 0
    ) -> None:
        network, num_gpu_blocks = model.network, cache_config.num_gpu_blocks
        if cache_config.enable_prefix_caching:
            raise NotImplementedError(
                "this engine has no prefix caching yet and computes every prompt in full: "
                "leave enable_prefix_caching out"
            )
        if num_gpu_blocks is None:
            raise ValueError("num_gpu_blocks is None, the engine needs to know the size of the pool")
        _check_max_model_len(scheduler_config.max_model_len, num_gpu_blocks, cache_config.block_size, network.config)
        _check_seed(seed, _SEED_BITS // 2)
        self._model = model
        self._limits = scheduler_config
        self._seed = seed
        self._num_requests = 0
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        sizes = (num_gpu_blocks, cache_config.num_cpu_blocks or 0)
        self.kv_cache = _new_kv_cache(network, *sizes, cache_config.block_size)
        self.block_manager = BlockSpaceManager(cache_config.block_size, *sizes)

    def add_request(self, request_id: str, prompt: Prompt, sampling_params: SamplingParams) -> None:
        """Queue a request.

        Args:
            request_id: not in use by an unfinished request.
            prompt: a text, or {"prompt_token_ids": [...]}.
            sampling_params: how to go on from there.

        Raises:
            ValueError: for an id in use, a prompt in another form, an empty one, one with a token that the model does
                not have, or a seed that is negative or has more than 64 bits.
            NotImplementedError: for more than one sequence a request.
        """
        if any(request.group.request_id == request_id for request in (*self._waiting, *self._running)):
            raise ValueError(f"request {request_id} is in use")
        if sampling_params.num_candidates > 1:
            raise NotImplementedError(
                f"n={sampling_params.n} and best_of={sampling_params.best_of} ask for "
                f"{sampling_params.num_candidates} sequences, this version runs 1 a request: leave them out"
            )
        seq = Sequence(self._num_requests, self._token_ids_of(prompt), self.block_manager.block_size)
        seed = sampling_params.seed
        if seed is None:
            seed = (self._seed << _SEED_BITS // 2) + seq.seq_id
        _check_seed(seed, _SEED_BITS)
        request = _Request(
            group=SequenceGroup(request_id, [seq], sampling_params, arrival_time=float(self._num_requests)),
            seq=seq,
            prompt=prompt if isinstance(prompt, str) else None,
            sampling_params=sampling_params,
            generator=torch.Generator().manual_seed(seed),
            detokenizer=IncrementalDetokenizer(self._model.tokenizer),
        )
        self._num_requests += 1
        self._waiting.append(request)

    def _token_ids_of(self, prompt: Prompt) -> list[int]:
        """The prompt's tokens. ValueError for none, for one that the model does not have, or for another form."""
        if isinstance(prompt, str):
            token_ids = self._model.tokenizer.encode(prompt)
        elif isinstance(prompt, Mapping) and "prompt_token_ids" in prompt:
            token_ids = prompt["prompt_token_ids"]
        else:
            raise ValueError(f'a prompt is a text or {{"prompt_token_ids": [...]}}, got {prompt!r}')
        if not token_ids:
            raise ValueError("an empty prompt: it needs at least 1 token")
        vocab_size = self._model.network.config.vocab_size
        for token_id in token_ids:
            if type(token_id) is int and token_id >= vocab_size:
                raise ValueError(
                    f"token id {token_id} is not in the model's vocabulary, which ends at {vocab_size - 1}"
                )
        return token_ids

    def abort_request(self, request_id: str) -> None:
        """End a request, wherever it is, and free its blocks. An unknown id: nothing."""
        for queue in (self._waiting, self._running):
            for request in [request for request in queue if request.group.request_id == request_id]:
                queue.remove(request)
                self._finish(request, SequenceStatus.FINISHED_ABORTED)

    def has_unfinished_requests(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._waiting or self._running)

    def step(self) -> list[RequestOutput]:
        """Compute the prompts that can be admitted or, when there are none, one token of every running request.

        Requests that can never run are given back first, with the reason, in a step that computes nothing.

        Returns:
            The requests that this step moved, each as far as it has come.

        Raises:
            ValueError: when a running sequence needs a block and none is free. Nothing is lost: once a request has
                been aborted, the others go on.
        """
        if ignored := self._ignore_what_can_never_run():
            return [_output_of(request) for request in ignored]
        requests = self._admit()
        if not requests:
            self._make_room()
            requests = self._running
        if requests:
            self._compute(requests)
        outputs = [_output_of(request) for request in requests]
        self._running = [request for request in self._running if not request.seq.is_finished()]
        return outputs

    def _ignore_what_can_never_run(self) -> list[_Request]:
        """Take the requests that no wait would help off the head of the queue."""
        ignored = []
        while self._waiting and (reason := self._why_never(self._waiting[0])):
            request = self._waiting.popleft()
            request.error = reason
            self._finish(request, SequenceStatus.FINISHED_IGNORED)
            ignored.append(request)
        return ignored

    def _why_never(self, request: _Request) -> str | None:
        """Why the request cannot run even with the machine to itself; None when it can."""
        manager, num_tokens = self.block_manager, request.seq.get_len()
        if num_tokens > self._limits.max_model_len:
            return f"the prompt has {num_tokens} tokens, max_model_len is {self._limits.max_model_len}"
        if manager.can_allocate(request.group) is AllocStatus.NEVER:
            return (
                f"the prompt needs {request.seq.n_blocks} blocks, the GPU pool holds {manager.num_total_gpu_blocks} "
                f"and keeps {manager.watermark_blocks} free"
            )
        return None

    def _admit(self) -> list[_Request]:
        """Give blocks to waiting requests in order, as far as blocks, seats and the step's tokens go."""
        admitted: list[_Request] = []
        tokens_left = self._limits.max_num_batched_tokens or self._limits.max_model_len
        while self._waiting and len(self._running) < self._limits.max_num_seqs:
            request = self._waiting[0]
            tokens_left -= request.seq.get_len()
            if tokens_left < 0 or self.block_manager.can_allocate(request.group) is not AllocStatus.OK:
                break
            self.block_manager.allocate(request.group)
            request.seq.status = SequenceStatus.RUNNING
            self._running.append(self._waiting.popleft())
            admitted.append(request)
        return admitted

    def _make_room(self) -> None:
        """A slot for the newest token of every running sequence, and the copies that this asks for."""
        for request in self._running:
            try:
                copies = self.block_manager.append_slots(request.seq)
            except ValueError as error:
                raise ValueError(
                    f"request {request.group.request_id} needs a block for its token {request.seq.get_len()}, and "
                    f"all {self.block_manager.num_total_gpu_blocks} blocks of {self.block_manager.block_size} tokens "
                    f"are taken by {len(self._running)} running requests: raise num_gpu_blocks_override, lower "
                    f"max_tokens or max_num_seqs, or give fewer prompts at once"
                ) from error
            self.kv_cache.copy(copies)

    def _compute(self, requests: SequenceOf[_Request]) -> None:
        """One forward pass, one token more for each request."""
        seqs = [request.seq for request in requests]
        for request in requests:
            request.block_table = self.block_manager.get_block_table(request.seq)
        block_tables = [request.block_table for request in requests]
        network = self._model.network
        step = prepare_step(seqs, block_tables, self.block_manager.block_size, network.device)
        logits = network.forward(step, self.kv_cache)
        tokens = sample(
            logits,
            [request.sampling_params for request in requests],
            [request.generator for request in requests],
        )
        for request, token in zip(requests, tokens, strict=True):
            request.seq.num_computed_tokens = request.seq.get_len()
            request.seq.append_token_id(token)
            request.text += request.detokenizer.add(token)
            if (status := self._status_after(request, token)).is_finished():
                request.text += request.detokenizer.finish()
                self._finish(request, status)

    def _status_after(self, request: _Request, token: int) -> SequenceStatus:
        """Whether the sequence ends with the token that it has just got."""
        params, seq = request.sampling_params, request.seq
        if token in self._model.network.config.eos_token_ids and not params.ignore_eos:
            return SequenceStatus.FINISHED_STOPPED
        if seq.get_output_len() >= params.max_tokens or seq.get_len() >= self._limits.max_model_len:
            return SequenceStatus.FINISHED_LENGTH_CAPPED
        return SequenceStatus.RUNNING

    def _finish(self, request: _Request, status: SequenceStatus) -> None:
        request.seq.status = status
        self.block_manager.free(request.seq)


class LLM:
    """A model and an engine, for prompts that are all there at once.

    Args:
        model: "smollm2-135m", the path of a GGUF file, or of a folder in the hub's format.
        dtype: "auto" (float32), "float32", "float16" or "bfloat16".
        block_size: tokens a block.
        gpu_memory_utilization: share of the memory for the cache that the GPU pool takes; the model runs on the CPU
            here, where that memory is 1 GiB.
        num_gpu_blocks_override: blocks of the GPU pool, instead of what would fit.
        max_model_len: tokens a sequence; what the model and the pool can hold when left out.
        max_num_seqs: sequences at once.
        max_num_batched_tokens: prompt tokens a step.
        enable_prefix_caching: not in this engine yet.
        seed: for requests that bring no seed of their own.

    Raises:
        FileNotFoundError: without the model.
        ValueError: for a model or a flag that cannot work.

    Source: vLLM 0.5.4, `vllm/entrypoints/llm.py`, `LLM`.
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        *,
        dtype: str = "auto",
        block_size: int = 16,
        gpu_memory_utilization: float = 0.9,
        num_gpu_blocks_override: int | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int | None = None,
        enable_prefix_caching: bool = False,
        seed: int = 0,
    ) -> None:
        cache_config = CacheConfig(block_size, gpu_memory_utilization, enable_prefix_caching=enable_prefix_caching)
        if num_gpu_blocks_override is not None and num_gpu_blocks_override < 1:
            raise ValueError(f"num_gpu_blocks_override is {num_gpu_blocks_override}, it must be 1 or more")
        loaded = load_model(model, dtype)
        cache_config.num_gpu_blocks = num_gpu_blocks_override or _num_gpu_blocks(loaded, cache_config)
        if max_model_len is None:
            max_model_len = min(loaded.network.config.max_position_embeddings, cache_config.num_gpu_blocks * block_size)
        scheduler_config = SchedulerConfig(max_num_batched_tokens, max_num_seqs, max_model_len=max_model_len)
        self._tokenizer = loaded.tokenizer
        self._num_requests = 0
        self.llm_engine = LLMEngine(loaded, cache_config, scheduler_config, seed=seed)

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer, chat template included."""
        return self._tokenizer

    def generate(
        self,
        prompts: Prompt | SequenceOf[Prompt],
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
    ) -> list[RequestOutput]:
        """Answer every prompt, all of them through one block manager.

        Args:
            prompts: one or several, each a text or {"prompt_token_ids": [...]}; texts are taken as they are, without
                the chat template.
            sampling_params: one for all, or one for each prompt.

        Returns:
            One output a prompt, in their order. A prompt that could not run says why in its `error`.

        Raises:
            ValueError: for a bad prompt, or when the pool runs full; the requests of this call are gone then.
        """
        listed: list[Prompt] = [prompts] if isinstance(prompts, (str, Mapping)) else list(prompts)
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            sampling_params = [sampling_params or SamplingParams()] * len(listed)
        if len(sampling_params) != len(listed):
            raise ValueError(f"{len(listed)} prompts and {len(sampling_params)} sampling_params: give one, or one each")
        request_ids = [str(self._num_requests + index) for index in range(len(listed))]
        self._num_requests += len(listed)
        finished: dict[str, RequestOutput] = {}
        try:
            for request_id, prompt, params in zip(request_ids, listed, sampling_params, strict=True):
                self.llm_engine.add_request(request_id, prompt, params)
            while self.llm_engine.has_unfinished_requests():
                finished |= {output.request_id: output for output in self.llm_engine.step() if output.finished}
        finally:
            for request_id in request_ids:
                self.llm_engine.abort_request(request_id)
        return [finished[request_id] for request_id in request_ids]


def _new_kv_cache(network: Llama, num_gpu_blocks: int, num_cpu_blocks: int, block_size: int) -> KVCache:
    """A cache of the model's shape. ValueError for one that memory cannot hold."""
    config, num_blocks = network.config, num_gpu_blocks + num_cpu_blocks
    shape = (block_size, config.num_key_value_heads, config.head_dim, network.dtype)
    try:
        return KVCache(config.num_hidden_layers, num_gpu_blocks, num_cpu_blocks, *shape, network.device)
    except (RuntimeError, TypeError) as error:  # torch: RuntimeError beyond memory, TypeError beyond 64 bits
        size = num_blocks * KVCache.bytes_per_block(config.num_hidden_layers, *shape)
        raise ValueError(
            f"{num_blocks} blocks take {size} bytes, more than there is: lower num_gpu_blocks_override"
        ) from error


def _num_gpu_blocks(model: LoadedModel, cache_config: CacheConfig) -> int:
    """Blocks that fit into the cache's share of memory. ValueError when that is none."""
    config = model.network.config
    block_bytes = KVCache.bytes_per_block(
        config.num_hidden_layers,
        cache_config.block_size,
        config.num_key_value_heads,
        config.head_dim,
        model.network.dtype,
    )
    budget = int(cache_config.gpu_memory_utilization * HOST_KV_BYTES)
    if budget < block_bytes:
        raise ValueError(
            f"a block of {cache_config.block_size} tokens takes {block_bytes} bytes, the cache has {budget}: lower "
            f"block_size, or raise gpu_memory_utilization ({cache_config.gpu_memory_utilization})"
        )
    return budget // block_bytes


def _check_max_model_len(max_model_len: int, num_gpu_blocks: int, block_size: int, config: LlamaConfig) -> None:
    """ValueError for sequences that could outgrow the pool or the model's positions."""
    if max_model_len > num_gpu_blocks * block_size:
        raise ValueError(
            f"max_model_len is {max_model_len}, the GPU pool holds {num_gpu_blocks * block_size} tokens "
            f"({num_gpu_blocks} blocks of {block_size}): lower max_model_len or raise num_gpu_blocks_override"
        )
    if max_model_len > config.max_position_embeddings:
        raise ValueError(
            f"max_model_len is {max_model_len}, the model has positions for {config.max_position_embeddings}"
        )


def _check_seed(seed: int, bits: int) -> None:
    """ValueError for a seed that is negative or has more bits. (torch takes -1 too, as another name of 2**64 - 1.)"""
    if not 0 <= seed < 1 << bits:
        raise ValueError(f"seed is {seed}, it must be between 0 and {(1 << bits) - 1}")


def _output_of(request: _Request) -> RequestOutput:
    seq = request.seq
    completion = CompletionOutput(
        index=0,
        text=request.text,
        token_ids=seq.output_token_ids,
        finish_reason=_FINISH_REASONS.get(seq.status),
        block_table=request.block_table,
    )
    return RequestOutput(
        request_id=request.group.request_id,
        prompt=request.prompt,
        prompt_token_ids=seq.prompt_token_ids,
        outputs=[completion],
        finished=seq.is_finished(),
        error=request.error,
    )
