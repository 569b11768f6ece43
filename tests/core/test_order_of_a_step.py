"""Swap in, swap out, copy, compute: carried out in this order, a step leaves every token where its sequence reads it.

The worker here keeps token ids where a real one keeps keys and values, and trusts the scheduler's lists alone. Tokens
are of two kinds only, so branches often draw alike, blocks fill alike, and prefix caching gives and takes back blocks
in the middle of a step.
"""

import random
from collections import Counter

import pytest

from refimpl import CacheConfig, SamplingParams, Scheduler, SchedulerConfig, Sequence, SequenceGroup, SequenceStatus


class Worker:
    """Two pools of slots that hold token ids."""

    def __init__(self, block_size, num_gpu_blocks, num_cpu_blocks):
        self.block_size = block_size
        self.gpu = [[None] * block_size for _ in range(num_gpu_blocks)]
        self.cpu = [[None] * block_size for _ in range(num_cpu_blocks)]

    def run(self, metadata, outputs):
        """Move blocks, then write every sequence's new tokens, then read all of each back."""
        for source, destination in outputs.blocks_to_swap_in:
            self.gpu[destination] = list(self.cpu[source])
        for source, destination in outputs.blocks_to_swap_out:
            self.cpu[destination] = list(self.gpu[source])
        sources = {source: list(self.gpu[source]) for source, _ in outputs.blocks_to_copy}
        for source, destination in outputs.blocks_to_copy:
            self.gpu[destination] = list(sources[source])
        running = [(data, seq) for data in metadata for seq in data.seq_data.values()]
        for data, seq in running:
            cached = len(data.computed_block_nums) * self.block_size if data.is_prompt else seq.get_len() - 1
            for position, token in enumerate(seq.get_token_ids()[cached:], cached):
                block = data.block_tables[seq.seq_id][position // self.block_size]
                self.gpu[block][position % self.block_size] = token
        for data, seq in running:
            read = [token for block in data.block_tables[seq.seq_id] for token in self.gpu[block]]
            assert read[: seq.get_len()] == seq.get_token_ids(), f"sequence {seq.seq_id} reads another's tokens"


def live(seed, *, caching, mode):
    """Requests come, fork, draw tokens and end at random. Returns how often what happened."""
    chance = random.Random(seed)
    block_size, num_gpu_blocks = chance.choice([2, 3, 4]), chance.randint(6, 14)
    worker = Worker(block_size, num_gpu_blocks, 20)
    longest = block_size * num_gpu_blocks
    scheduler = Scheduler(
        SchedulerConfig(max_model_len=longest, preemption_mode=mode, max_num_seqs=16),
        CacheConfig(block_size, enable_prefix_caching=caching, num_gpu_blocks=num_gpu_blocks, num_cpu_blocks=20),
    )
    groups, seen = {}, Counter()
    for now in range(150):
        if chance.random() < 0.4 and len(scheduler.waiting) < 3:
            prompt = [chance.choice([1, 2]) for _ in range(chance.randint(1, 2 * block_size))]
            params = SamplingParams(n=chance.choice([1, 2, 2, 3]))
            group = SequenceGroup(str(now), [Sequence(10 * now, prompt, block_size)], params, arrival_time=now)
            scheduler.add_seq_group(group)
            groups[group.request_id] = group
        metadata, outputs = scheduler.schedule(float(now))
        worker.run(metadata, outputs)
        seen["swap in beside copy"] += bool(outputs.blocks_to_swap_in and outputs.blocks_to_copy)
        seen["swap out beside copy"] += bool(outputs.blocks_to_swap_out and outputs.blocks_to_copy)
        seen["held back"] += any("come back over" in decision.reason for decision in outputs.decisions)
        for data in metadata:
            group = groups[data.request_id]
            for number in range(1, group.sampling_params.n if group.num_seqs() == 1 else 1):
                child = group.seqs[0].fork(10 * int(group.request_id) + number)
                group.add(child)
                scheduler.fork_seq(group.seqs[0], child)
            for seq in group.get_seqs(SequenceStatus.RUNNING):
                seq.append_token_id(chance.choice([1, 1, 1, 2]))
                if chance.random() < 0.05 or seq.get_len() == longest:
                    seq.status = SequenceStatus.FINISHED_STOPPED
                    scheduler.free_seq(seq)
    return seen


@pytest.mark.parametrize("mode", [None, "swap", "recompute"])
@pytest.mark.parametrize("caching", [False, True])
def test_every_sequence_reads_its_own_tokens(caching, mode):
    seen = sum((live(seed, caching=caching, mode=mode) for seed in range(60)), Counter())
    assert min(seen["swap in beside copy"], seen["swap out beside copy"]) > 3


def test_nobody_comes_back_over_what_is_to_be_copied():
    """A block that a copy of this step reads may be given back in the step; a swap in, done first, must not get it."""
    assert sum(live(seed, caching=True, mode="swap")["held back"] for seed in range(60)) > 10
