"""Many requests through one block manager: schedule, move blocks, compute, choose tokens, free what has ended.

The engine owns the scheduler, the cache and what each request has grown to. Who runs and where its keys and values lie
is the scheduler's decision alone; the engine carries it out in the order that makes it right: swap in, swap out, copy,
compute. What it gives back never depends on those decisions, only on the requests.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

import torch

from refimpl.block_manager import BlockSpaceManager
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.device import memory
from refimpl.device.kv_cache import KVCache
from refimpl.scheduler import SchedulerOutputs, SequenceGroupMetadata
from refimpl.sequence import SamplingParams, Sequence, SequenceGroup, SequenceStatus
from refimpl.serving.llama import LlamaConfig
from refimpl.serving.metrics import StepMetrics
from refimpl.serving.model_runner import prepare_step
from refimpl.serving.outputs import RequestOutput
from refimpl.serving.request import SEED_BITS, Branch, Request
from refimpl.serving.sampling import logprobs_of, sample
from refimpl.serving.seam import EngineParts, ReferenceParts
from refimpl.serving.tokenizer import IncrementalDetokenizer
from refimpl.serving.weights import LoadedModel

Prompt = str | Mapping[str, list[int]]  # a text, or {"prompt_token_ids": [...]}

MAX_TOKENS_AT_A_TIME = 512  # in a forward pass, unless one prompt is longer
_ENGINE_SEED_BITS = 32  # the upper half of a branch's seed, where the request brings none; the lower numbers branches


class LLMEngine:
    """Runs requests a step at a time.

    Args:
        model: network and tokenizer.
        cache_config: with `num_gpu_blocks` known; `num_cpu_blocks` follows from `swap_space` when it is not.
        scheduler_config: the limits of a step and of a sequence.
        parts: whose scheduler, block manager, cache and attention: `refimpl.parts.Parts`; refimpl's when left out.
        seed: for requests that bring no seed of their own, 0 to 2**32 - 1.
        log_decisions: print every decision of the scheduler as a line of text.

    Raises:
        ValueError: for a pool of unknown size or one that memory cannot hold, a max_model_len beyond the pool or the
            model, or a seed that is negative or has more than 32 bits.

    >>> from refimpl.serving.weights import load_model
    >>> cache_config = CacheConfig(num_gpu_blocks=8, num_cpu_blocks=0)
    >>> engine = LLMEngine(load_model("random-tiny"), cache_config, SchedulerConfig(max_model_len=64))
    >>> engine.add_request("a", "blocks", SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
    >>> [[output.finished for output in engine.step()] for _ in range(2)], engine.has_unfinished_requests()
    ([[False], [True]], False)

    Source: vLLM 0.5.4, `vllm/engine/llm_engine.py`, `LLMEngine`.
    """

    def __init__(
        self,
        model: LoadedModel,
        cache_config: CacheConfig,
        scheduler_config: SchedulerConfig,
        parts: EngineParts | None = None,
        *,
        seed: int = 0,
        log_decisions: bool = False,
    ) -> None:
        network, num_gpu_blocks = model.network, cache_config.num_gpu_blocks
        self._parts: EngineParts = parts or ReferenceParts()
        if num_gpu_blocks is None:
            raise ValueError("num_gpu_blocks is None, the engine needs to know the size of the pool")
        _check_max_model_len(scheduler_config.max_model_len, num_gpu_blocks, cache_config.block_size, network.config)
        _check_seed(seed, _ENGINE_SEED_BITS)
        shape = cache_shape(network.config, cache_config.block_size, network.dtype)
        self._block_bytes = KVCache.bytes_per_block(*shape)
        memory.keep_freed_memory()
        num_cpu_blocks = cache_config.num_cpu_blocks
        if num_cpu_blocks is None:
            num_cpu_blocks = memory.num_cpu_blocks(
                cache_config,
                self._block_bytes,
                num_gpu_blocks,
                memory.host_memory(),
                pinned=network.device.type == "cuda",
            )
        self.kv_cache = self._parts.make_kv_cache(shape[0], num_gpu_blocks, num_cpu_blocks, *shape[1:], network.device)
        self.scheduler = self._parts.make_scheduler(
            scheduler_config, replace(cache_config, num_cpu_blocks=num_cpu_blocks), log_decisions=log_decisions
        )
        self._num_blocks = num_gpu_blocks, num_cpu_blocks
        self._model = model
        self._limits = scheduler_config
        self._seed = seed
        self._num_branches = 0  # of all requests so far, which is the next seq_id
        self._requests: dict[str, Request] = {}
        self.metrics = StepMetrics(
            num_free_gpu_blocks=num_gpu_blocks, num_free_cpu_blocks=num_cpu_blocks
        )  # after the last step

    @property
    def block_manager(self) -> BlockSpaceManager:
        """The scheduler's block manager."""
        return self.scheduler.block_manager

    def add_request(self, request_id: str, prompt: Prompt, sampling_params: SamplingParams) -> None:
        """Queue a request.

        Args:
            request_id: not in use by an unfinished request.
            prompt: a text, or {"prompt_token_ids": [...]}.
            sampling_params: how to go on from there.

        Raises:
            ValueError: for an id in use, a prompt in another form, an empty one, one with a token that the model does
                not have, more sequences than `max_num_seqs`, or a seed that is negative or has more than 64 bits.
        """
        if request_id in self._requests:
            raise ValueError(f"request {request_id} is in use")
        seed = sampling_params.seed
        if seed is None:
            seed = (self._seed << _ENGINE_SEED_BITS) + self._num_branches
        _check_seed(seed, SEED_BITS)
        seq = Sequence(self._num_branches, self._token_ids_of(prompt), self.block_manager.block_size)
        group = SequenceGroup(request_id, [seq], sampling_params, arrival_time=float(self._num_branches))
        with self._parts.at_work():
            self.scheduler.add_seq_group(group)
        generator = torch.Generator().manual_seed(seed)
        detokenizer = IncrementalDetokenizer(self._model.tokenizer)
        branch = Branch(seq, generator, detokenizer, tuple(sampling_params.stop))
        text = prompt if isinstance(prompt, str) else None
        self._requests[request_id] = Request(group, text, sampling_params, {seq.seq_id: branch})
        self._num_branches += sampling_params.num_candidates

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
        """End the request `request_id`, wherever it is, and free its blocks. An unknown id: nothing."""
        with self._parts.at_work():
            self.scheduler.abort_seq_group(request_id)
        self._requests.pop(request_id, None)

    def has_unfinished_requests(self) -> bool:
        """Whether there is anything left to do."""
        return self.scheduler.has_unfinished_seqs()

    def step(self, *, final_only: bool = False) -> list[RequestOutput]:
        """Compute the prompts that can be admitted or, when there are none, one token of every running request.

        Args:
            final_only: give back the requests that have ended and no others, which saves the work of texts that
                nobody reads.

        Returns:
            The requests that this step moved, each as far as it has come. One that cannot run, or that lost its place
            and cannot come back, is finished and says why in its `error`.

        Raises:
            PartError: when a learner's part fails; it names the part.
        """
        with self._parts.at_work():
            return self._step(final_only)

    def _step(self, final_only: bool) -> list[RequestOutput]:
        start = time.perf_counter()
        metadata, outputs = self.scheduler.schedule()
        ended = self._ended_by_the_scheduler(outputs)
        self._move_blocks(outputs)
        num_new_tokens = self._compute(metadata) if metadata else 0
        self.scheduler.free_finished_seq_groups()
        moved = [*ended, *(self._requests[data.request_id] for data in metadata)]
        results = [request.output() for request in moved if request.group.is_finished() or not final_only]
        for request in moved:
            if request.group.is_finished():
                del self._requests[request.group.request_id]
        self._note(metadata, outputs, num_new_tokens, time.perf_counter() - start)
        return results

    def _ended_by_the_scheduler(self, outputs: SchedulerOutputs) -> list[Request]:
        """The requests that the scheduler gave up, with the reason written down."""
        ended = []
        for group in outputs.ignored_seq_groups:
            request = self._requests[group.request_id]
            request.error = self._why_ignored(request)
            ended.append(request)
        for group in outputs.aborted_seq_groups:
            request = self._requests[group.request_id]
            request.error = self._why_aborted(request, outputs)
            ended.append(request)
        return ended

    def _why_aborted(self, request: Request, outputs: SchedulerOutputs) -> str:
        """Why the request could not make room by swap and come back later."""
        request_id = request.group.request_id
        decision = next(d for d in outputs.decisions if d.request_id == request_id and d.action == "abort")
        return (
            f"request {request_id} had to make room, and its {request.num_blocks(SequenceStatus.FINISHED_ABORTED)} "
            f"blocks do not fit the {decision.num_free_cpu_blocks} that are free of the "
            f"{self._num_blocks[1]} blocks of swap space: raise swap_space"
        )

    def _why_ignored(self, request: Request) -> str:
        """Why the request could not run even with the machine to itself."""
        num_gpu_blocks, reserved = self._num_blocks[0], self.block_manager.watermark_blocks
        seqs = request.group.get_seqs(SequenceStatus.FINISHED_IGNORED)
        what = "the prompt" if not seqs[0].get_output_len() else "the prompt with its answer so far"
        if seqs[0].get_len() > self._limits.max_model_len:
            return f"{what} has {seqs[0].get_len()} tokens, max_model_len is {self._limits.max_model_len}"
        needs = f"{seqs[0].n_blocks} blocks"
        if len(seqs) > 1 or seqs[0].n_blocks <= num_gpu_blocks - reserved:
            needs = f"{request.num_blocks(SequenceStatus.FINISHED_IGNORED)} blocks and {len(seqs)} to grow into"
        return (
            f"{what} needs {needs}, the GPU pool holds {num_gpu_blocks} and keeps {reserved} free: "
            f"raise num_gpu_blocks_override or gpu_memory_utilization"
        )

    def _move_blocks(self, outputs: SchedulerOutputs) -> None:
        """Carry out what the block manager has written down, in the order that it counts on."""
        self.kv_cache.swap_in(one_source_each(outputs.blocks_to_swap_in))
        self.kv_cache.swap_out(one_source_each(outputs.blocks_to_swap_out))
        self.kv_cache.copy(one_source_each(outputs.blocks_to_copy))

    def _compute(self, metadata: SequenceOf[SequenceGroupMetadata]) -> int:
        """One forward pass, one token more for each branch; how many tokens that makes."""
        seqs: list[Sequence] = []
        block_tables: list[list[int]] = []
        drawing: list[tuple[int, Request, Branch]] = []  # row of the logits, and who draws a token from it
        for data in metadata:
            request = self._requests[data.request_id]
            for seq_id, seq in data.seq_data.items():
                if data.is_prompt:
                    seq.num_computed_tokens = len(data.computed_block_nums) * self.block_manager.block_size
                request.branches[seq_id].block_table = data.block_tables[seq_id]
                drawing += [(len(seqs), request, branch) for branch in self._branches_of(request, seq)]
                seqs.append(seq)
                block_tables.append(data.block_tables[seq_id])
        logits = self._logits_of(seqs, block_tables)
        if len(drawing) > len(seqs):
            logits = logits[[row for row, _, _ in drawing]]
        params = [request.sampling_params for _, request, _ in drawing]
        tokens = sample(logits, params, [branch.generator for _, _, branch in drawing])
        self._note_logprobs(logits, tokens, drawing)
        for token, (_, request, branch) in zip(tokens, drawing, strict=True):
            self._append(request, branch, token)
        return len(tokens)

    def _logits_of(self, seqs: list[Sequence], block_tables: list[list[int]]) -> torch.Tensor:
        """What follows each sequence, its new tokens computed: [num_seqs, vocab_size].

        Prompts are taken a few at a time, because the buffers of many long ones are slow to get and to fill, and so
        that a prompt need not compute what another of the same step has computed in a block that they share. Decodes
        are taken together, because a block that one of them copies over may be read by another, which has to wait for
        the write.
        """
        network, block_size, logits, start = self._model.network, self.block_manager.block_size, [], 0
        computed: set[int] = set()  # blocks that this step has computed so far, to the last slot
        while start < len(seqs):
            end = _end_of_part(seqs, block_tables, start, computed, block_size)
            part, tables = seqs[start:end], block_tables[start:end]
            step = prepare_step(part, tables, self.kv_cache, self._parts.slots)
            logits.append(network.forward(step, self.kv_cache, self._parts.decode))
            for seq, block_table in zip(part, tables, strict=True):
                computed.update(block_table[: seq.get_len() // block_size])
            start = end
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _branches_of(self, request: Request, seq: Sequence) -> list[Branch]:
        """The branches that draw from what follows `seq`: its own, and at the end of a prompt all those to come."""
        first = request.branches[seq.seq_id]
        branches = [first]
        if len(request.branches) == 1:
            seed = first.generator.initial_seed()
            for index in range(1, request.sampling_params.num_candidates):
                generator = torch.Generator().manual_seed((seed + index) % (1 << SEED_BITS))
                branches.append(self._fork(request, first, seq.seq_id + index, generator))
        return branches

    def _fork(self, request: Request, parent: Branch, seq_id: int, generator: torch.Generator) -> Branch:
        """A branch that shares all blocks of its parent."""
        seq = parent.seq.fork(seq_id)
        request.group.add(seq)
        self.scheduler.fork_seq(parent.seq, seq)
        request.branches[seq_id] = branch = parent.fork(seq, generator)
        return branch

    def _note_logprobs(
        self, logits: torch.Tensor, tokens: list[int], drawing: list[tuple[int, Request, Branch]]
    ) -> None:
        """Add up how likely the branches are that will have to be compared."""
        compared = [
            row
            for row, (_, request, _) in enumerate(drawing)
            if request.sampling_params.num_candidates > request.sampling_params.n
        ]
        if compared:
            params = [drawing[row][1].sampling_params for row in compared]
            logprobs = logprobs_of(logits[compared], [tokens[row] for row in compared], params)
            for row, logprob in zip(compared, logprobs, strict=True):
                drawing[row][2].cumulative_logprob += logprob

    def _append(self, request: Request, branch: Branch, token: int) -> None:
        """The token joins the branch, and the branch may end."""
        seq, params = branch.seq, request.sampling_params
        seq.num_computed_tokens = seq.get_len()
        seq.append_token_id(token)
        eos = self._model.network.config.eos_token_ids
        status = branch.status_after(token, params, eos, self._limits.max_model_len)
        if status.is_finished():
            branch.finish(status)
            self.scheduler.free_seq(seq)

    def _note(
        self,
        metadata: SequenceOf[SequenceGroupMetadata],
        outputs: SchedulerOutputs,
        num_new_tokens: int,
        seconds: float,
    ) -> None:
        """Write down the state after the step."""
        before, scheduler, manager = self.metrics, self.scheduler, self.block_manager
        prompts = [data for data in metadata if data.is_prompt]
        num_cached = sum(len(data.computed_block_nums) for data in prompts) * manager.block_size
        self.metrics = StepMetrics(
            step=before.step + 1,
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_swapped=len(scheduler.swapped),
            num_free_gpu_blocks=manager.get_num_free_gpu_blocks(),
            num_free_cpu_blocks=manager.get_num_free_cpu_blocks(),
            num_prompt_tokens=before.num_prompt_tokens + sum(data.token_chunk_size for data in prompts),
            num_cached_tokens=before.num_cached_tokens + num_cached,
            num_generated_tokens=before.num_generated_tokens + num_new_tokens,
            num_preemptions=before.num_preemptions + outputs.preempted,
            bytes_swapped_out=before.bytes_swapped_out + len(outputs.blocks_to_swap_out) * self._block_bytes,
            bytes_swapped_in=before.bytes_swapped_in + len(outputs.blocks_to_swap_in) * self._block_bytes,
            step_tokens=num_new_tokens,
            step_seconds=seconds,
        )


def cache_shape(config: LlamaConfig, block_size: int, dtype: torch.dtype) -> tuple[int, int, int, int, torch.dtype]:
    """num_layers, block_size, num_kv_heads, head_dim and dtype of the cache of a model of this `config`."""
    return config.num_hidden_layers, block_size, config.num_key_value_heads, config.head_dim, dtype


def _end_of_part(
    seqs: list[Sequence], block_tables: list[list[int]], start: int, computed: set[int], block_size: int
) -> int:
    """Where the part of a step that begins at `start` ends; what `computed` holds, its prompts skip.

    A part ends before it has more new tokens than it should, and before a prompt that shares a block with it which
    nobody has computed. A single new token never ends one: it may be a decode.
    """
    num_tokens, pending = 0, set[int]()
    for index in range(start, len(seqs)):
        seq, block_table = seqs[index], block_tables[index]
        first = seq.num_computed_tokens // block_size  # the first block that has to be computed
        while first < len(block_table) - 1 and block_table[first] in computed:
            first += 1
            seq.num_computed_tokens = first * block_size
        count = seq.get_len() - seq.num_computed_tokens
        too_many = num_tokens + count > MAX_TOKENS_AT_A_TIME
        if index > start and count > 1 and (too_many or block_table[first] in pending):
            return index
        num_tokens += count
        pending.update(set(block_table[: seq.get_len() // block_size]) - computed)
    return len(seqs)


def one_source_each(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """One pair for each destination, the last that names it.

    With prefix caching a block may be given to several sequences, because it stands for the same tokens, or be given
    back within the step and taken again for others. Either way the last source holds what is to be there.
    """
    sources = {destination: source for source, destination in pairs}
    return [(source, destination) for destination, source in sources.items()]


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
