"""A recorded run, for the tests of what is drawn from recordings; its worker makes up the tokens."""

from refimpl import (
    CacheConfig,
    SamplingParams,
    Scheduler,
    SchedulerConfig,
    Sequence,
    SequenceGroup,
)
from refimpl.simulation.recording import Recorder, Step
from tests.core.helpers import finish, work


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
            for seq in work(scheduler, entry.seq_group):
                if seq.get_output_len() == output_len:
                    finish(scheduler, seq)
    return recorder.steps
