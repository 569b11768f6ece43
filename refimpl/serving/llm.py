"""A model and an engine for prompts that are all there at once: `LLM`, under vLLM's flag names."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from pathlib import Path

import torch
from tqdm.auto import tqdm

from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.device import memory
from refimpl.device.kv_cache import STAGING_BLOCKS, KVCache
from refimpl.sequence import SamplingParams, Sequence
from refimpl.serving.engine import MAX_TOKENS_AT_A_TIME, LLMEngine, Prompt, cache_shape
from refimpl.serving.model_runner import prepare_step
from refimpl.serving.outputs import RequestOutput
from refimpl.serving.seam import EngineParts
from refimpl.serving.tokenizer import Tokenizer
from refimpl.serving.weights import LoadedModel, load_model

_BAR_DELAY = 3.0  # seconds of work before a progress bar appears


class LLM:
    """A model and an engine, for prompts that are all there at once.

    Args:
        model: "smollm2-135m", the path of a GGUF file, or of a folder in the hub's format; "random-tiny" is made in
            memory and knows nothing.
        dtype: "auto" (float32), "float32", "float16" or "bfloat16".
        device: "cpu" or "cuda".
        block_size: tokens a block.
        gpu_memory_utilization: share of the memory that the GPU pool takes: on CUDA, of the device's, the model
            included; on the CPU, of 1 GiB.
        swap_space: GiB of host memory for swapped blocks; None stands for twice the GPU pool.
        num_gpu_blocks_override: blocks of the GPU pool, instead of what would fit.
        max_model_len: tokens a sequence; what the model and the pool can hold when left out.
        max_num_seqs: sequences at once.
        max_num_batched_tokens: prompt tokens a step.
        enable_prefix_caching: reuse blocks whose tokens have been seen before, and skip computing them.
        preemption_mode: "recompute", "swap", or None to choose by the number of sequences.
        seed: for requests that bring no seed of their own.
        log_decisions: print every decision of the scheduler as a line of text.
        parts: whose scheduler, block manager, cache and attention: `refimpl.parts.Parts`; refimpl's when left out.

    Raises:
        FileNotFoundError: without the model.
        ValueError: for a model or a flag that cannot work.

    >>> llm = LLM("random-tiny", num_gpu_blocks_override=8)
    >>> (output,) = llm.generate("blocks", SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    >>> output.prompt, len(output.outputs[0].token_ids), output.outputs[0].finish_reason
    ('blocks', 4, 'length')

    Source: vLLM 0.5.4, `vllm/entrypoints/llm.py`, `LLM`.
    """

    def __init__(
        self,
        model: str | Path = "smollm2-135m",
        *,
        dtype: str = "auto",
        device: str = "cpu",
        block_size: int = 16,
        gpu_memory_utilization: float = 0.9,
        swap_space: float | None = None,
        num_gpu_blocks_override: int | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int | None = None,
        enable_prefix_caching: bool = False,
        preemption_mode: str | None = None,
        seed: int = 0,
        log_decisions: bool = False,
        parts: EngineParts | None = None,
    ) -> None:
        cache_config = CacheConfig(block_size, gpu_memory_utilization, swap_space, enable_prefix_caching)
        if num_gpu_blocks_override is not None and num_gpu_blocks_override < 1:
            raise ValueError(f"num_gpu_blocks_override is {num_gpu_blocks_override}, it must be 1 or more")
        loaded = load_model(model, dtype, device)
        cache_config.num_gpu_blocks = num_gpu_blocks_override or _num_gpu_blocks(loaded, cache_config, max_model_len)
        if max_model_len is None:
            max_model_len = min(loaded.network.config.max_position_embeddings, cache_config.num_gpu_blocks * block_size)
        scheduler_config = SchedulerConfig(
            max_num_batched_tokens, max_num_seqs, max_model_len=max_model_len, preemption_mode=preemption_mode
        )
        self._tokenizer = loaded.tokenizer
        self._num_requests = 0
        self.llm_engine = LLMEngine(
            loaded, cache_config, scheduler_config, parts, seed=seed, log_decisions=log_decisions
        )

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer, chat template included."""
        return self._tokenizer

    def generate(
        self,
        prompts: Prompt | SequenceOf[Prompt],
        sampling_params: SamplingParams | SequenceOf[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Answer every prompt, all of them through one block manager.

        Args:
            prompts: one or several, each a text or {"prompt_token_ids": [...]}; texts are taken as they are, without
                the chat template.
            sampling_params: one for all, or one for each prompt.
            use_tqdm: show a progress bar when it takes more than a few seconds.

        Returns:
            One output a prompt, in their order. A prompt that could not run says why in its `error`.

        Raises:
            ValueError: for a bad prompt; the requests of this call are gone then.
        """
        listed: list[Prompt] = [prompts] if isinstance(prompts, (str, Mapping)) else list(prompts)
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            sampling_params = [sampling_params or SamplingParams()] * len(listed)
        if len(sampling_params) != len(listed):
            raise ValueError(f"{len(listed)} prompts and {len(sampling_params)} sampling_params: give one, or one each")
        request_ids = [str(self._num_requests + index) for index in range(len(listed))]
        self._num_requests += len(listed)
        try:
            for request_id, prompt, params in zip(request_ids, listed, sampling_params, strict=True):
                self.llm_engine.add_request(request_id, prompt, params)
            finished = self._run(len(listed), use_tqdm)
        finally:
            for request_id in request_ids:
                self.llm_engine.abort_request(request_id)
        return [finished[request_id] for request_id in request_ids]

    def _run(self, num_requests: int, use_tqdm: bool) -> dict[str, RequestOutput]:
        """Step until nothing is left; the last output of every request."""
        finished: dict[str, RequestOutput] = {}
        with tqdm(total=num_requests, desc="prompts", delay=_BAR_DELAY, disable=not use_tqdm) as bar:
            while self.llm_engine.has_unfinished_requests():
                for output in self.llm_engine.step(final_only=True):
                    finished[output.request_id] = output
                    bar.update()
        return finished


def _num_gpu_blocks(model: LoadedModel, cache_config: CacheConfig, max_model_len: int | None) -> int:
    """Blocks that fit into the pool's share of memory."""
    network = model.network
    block_bytes = KVCache.bytes_per_block(*cache_shape(network.config, cache_config.block_size, network.dtype))
    model_bytes = step_bytes = 0
    if network.device.type == "cuda":
        model_bytes = torch.cuda.memory_allocated(network.device)
        num_tokens = max(MAX_TOKENS_AT_A_TIME, max_model_len or network.config.max_position_embeddings)
        step_bytes = _step_bytes(model, cache_config.block_size, num_tokens) + STAGING_BLOCKS * block_bytes
    return memory.num_gpu_blocks(
        cache_config, block_bytes, memory.device_memory(network.device, model_bytes, step_bytes)
    )


def _step_bytes(model: LoadedModel, block_size: int, num_tokens: int) -> int:
    """What a step of so many tokens takes on a CUDA device besides model and cache, found by running one."""
    network = model.network
    seq = Sequence(0, [0] * num_tokens, block_size)
    shape = cache_shape(network.config, block_size, network.dtype)
    cache = KVCache(shape[0], seq.n_blocks, 0, *shape[1:], network.device)
    before = torch.cuda.memory_allocated(network.device)
    torch.cuda.reset_peak_memory_stats(network.device)
    network.forward(prepare_step([seq], [list(range(seq.n_blocks))], cache), cache)
    return torch.cuda.max_memory_allocated(network.device) - before
