"""Small machines to simulate, and requests in a line each."""

from refimpl import CacheConfig, SchedulerConfig
from refimpl.simulation.cost_model import CostModel
from refimpl.simulation.simulator import Simulator
from refimpl.simulation.workload import Span, WorkloadRequest

EVERY_STEP_1_SECOND = CostModel(1.0, 0.0, 0.0, 0.0, 0.0, kv_bytes_per_token=10)


def cache_config(num_gpu_blocks, *, block_size=4, num_cpu_blocks=0, caching=False):
    return CacheConfig(
        block_size, num_gpu_blocks=num_gpu_blocks, num_cpu_blocks=num_cpu_blocks, enable_prefix_caching=caching
    )


def make_simulator(num_gpu_blocks, *, cost_model=EVERY_STEP_1_SECOND, manager=None, scheduler=None, **options):
    """A simulator of a small machine; options are those of cache_config, and of SchedulerConfig."""
    cache_options = {name: options.pop(name) for name in ("block_size", "num_cpu_blocks", "caching") if name in options}
    scheduler_config = SchedulerConfig(**{"max_model_len": 64, **options})
    config = cache_config(num_gpu_blocks, **cache_options)
    return Simulator(config, scheduler_config, cost_model, block_manager=manager, scheduler=scheduler)


def request(arrival_time, prompt, output_len, **others):
    """A request; its prompt is a number of tokens that nobody else has, or pairs of content and tokens."""
    if isinstance(prompt, int):
        request.contents += 1
        prompt = [(request.contents, prompt)]
    return WorkloadRequest(arrival_time, tuple(Span(*span) for span in prompt), output_len, **others)


request.contents = 1000
