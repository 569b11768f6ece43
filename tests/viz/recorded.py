"""A recorded run, for the tests of what is drawn from recordings; its worker makes up the tokens."""

from refimpl import (
    CacheConfig,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    Sequence,
    SequenceGroup,
    SequenceStatus,
)
from refimpl.simulation.recording import Recorder, Step


def run(
    num_gpu_blocks: int,
    num_cpu_blocks: int,
    prompts: dict[str, int],
    *,
    num_steps: int,
    output_len: int = 12,
    n: int = 1,
) -> list[Step]:
    """Record so many steps of requests with these prompts, in tokens; each has n sequences. Blocks of 4 tokens."""
    cache_config = CacheConfig(block_size=4, num_gpu_blocks=num_gpu_blocks, num_cpu_blocks=num_cpu_blocks)
    scheduler = Scheduler(SchedulerConfig(max_model_len=256, preemption_mode="swap"), cache_config)
    for place, (request_id, length) in enumerate(prompts.items()):
        seq = Sequence(100 * place, range(1000 * place, 1000 * place + length), 4)
        scheduler.add_seq_group(SequenceGroup(request_id, [seq], SamplingParams(n=n), arrival_time=float(place)))
    recorder = Recorder(scheduler)
    for number in range(num_steps):
        _, outputs = scheduler.schedule(now=number / 10)
        recorder.record(outputs, now=number / 10)
        for entry in outputs.scheduled_seq_groups:
            make_tokens(scheduler, entry.seq_group, output_len)
    return recorder.steps


def make_tokens(scheduler: Scheduler, group: SequenceGroup, output_len: int) -> None:
    """What a worker does: fork the prompt where several sequences are wanted, and a token for each."""
    (parent, *_) = group.get_seqs(SequenceStatus.RUNNING)
    for number in range(group.get_max_num_running_seqs() - group.num_unfinished_seqs()):
        child = parent.fork(parent.seq_id + number + 1)
        group.add(child)
        scheduler.fork_seq(parent, child)
    for seq in group.get_seqs(SequenceStatus.RUNNING):
        seq.append_token_id(9000 + seq.seq_id)
        if seq.get_output_len() == output_len:
            seq.status = SequenceStatus.FINISHED_STOPPED
            scheduler.free_seq(seq)
