"""The comparison of `test_tokens_do_not_depend_on_memory.py` can fail: planted faults, each found by its tokens.

Every scenario is first run as it is, must be right, and must hold the situation in which the fault matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from engines import Alone, Ask, add, engine_of, greedy, record_steps, run, sampled, workload

from refimpl import BlockSpaceManager, LLMEngine, Sequence
from refimpl.device.kv_cache import KVCache
from refimpl.scheduler import Scheduler, SchedulerOutputs
from refimpl.serving import engine as engine_module
from refimpl.serving.weights import LoadedModel


@dataclass(frozen=True)
class Scenario:
    """Requests, an engine for them, and what a step of it has to look like."""

    asks: tuple[Ask, ...]
    pool: dict[str, object]
    situation: Callable[[SchedulerOutputs], object]

    def run(self, model: LoadedModel, alone: Alone) -> tuple[list[str], list[SchedulerOutputs]]:
        """What differs from the requests alone, and the steps."""
        engine = engine_of(model, **self.pool)
        steps = record_steps(engine)
        add(engine, self.asks)
        outputs = run(engine)
        differences = alone.differences(self.asks, outputs)
        if self.pool.get("caching"):
            add(engine, self.asks, len(self.asks))
            differences += alone.differences(self.asks, run(engine), len(self.asks))
        return differences, steps


def targets(pairs: list[tuple[int, int]]) -> set[int]:
    return {target for _, target in pairs}


def sources(pairs: list[tuple[int, int]]) -> set[int]:
    return {source for source, _ in pairs}


PROMPT = tuple(range(30, 60))
BRANCHES = Scenario(
    (Ask(PROMPT[:6], sampled(8, 3, n=2)),),
    {"num_gpu_blocks": 16},
    lambda step: step.blocks_to_copy,
)
SWAP = Scenario(
    (Ask(PROMPT[:8], greedy(12)), Ask(PROMPT[10:18], greedy(12)), Ask(PROMPT[5:12], greedy(12))),
    {"num_gpu_blocks": 8, "num_cpu_blocks": 20, "mode": "swap", "max_model_len": 32},
    lambda step: step.blocks_to_swap_in,
)
# The first request's next block is one that the second leaves in the same step.
WRITE_INTO_SWAPPED_OUT = Scenario(
    (Ask(PROMPT[:8], greedy(4)), Ask(PROMPT[10:18], greedy(4))),
    {"num_gpu_blocks": 4, "num_cpu_blocks": 20, "mode": "swap", "max_model_len": 16},
    lambda step: step.blocks_to_swap_out,
)
# The first request's copy goes to a block that the second leaves in the same step.
COPY_INTO_SWAPPED_OUT = Scenario(
    (Ask(PROMPT[:6], sampled(5, 3, n=2)), Ask(PROMPT[:21], greedy(6))),
    {"num_gpu_blocks": 8, "num_cpu_blocks": 20, "mode": "swap", "max_model_len": 32},
    lambda step: targets(step.blocks_to_copy) & sources(step.blocks_to_swap_out),
)
# Branches that have not yet grown apart come back, and grow apart at once.
COPY_OF_SWAPPED_IN = Scenario(
    (Ask(PROMPT[:24], greedy(3)), Ask(PROMPT[5:11], sampled(6, 3, n=2))),
    {"num_gpu_blocks": 8, "num_cpu_blocks": 20, "mode": "swap", "max_model_len": 32},
    lambda step: sources(step.blocks_to_copy) & targets(step.blocks_to_swap_in),
)
CACHED = Scenario(
    (Ask(PROMPT[:17], greedy(10)), Ask((*PROMPT[:9], *range(200, 208)), greedy(10)), Ask(PROMPT[:12], greedy(10))),
    {"num_gpu_blocks": 64, "caching": True},
    lambda step: step.num_prefill_groups,
)
TWO = Scenario(
    (Ask(PROMPT[:8], greedy(8)), Ask(PROMPT[10:18], greedy(8))),
    {"num_gpu_blocks": 16},
    lambda step: len(step.scheduled_seq_groups) == 2,
)


def replace(owner: object, name: str, build: Callable) -> Callable[[pytest.MonkeyPatch], None]:
    """A fault: `owner.name` becomes what `build` makes of it."""
    return lambda patch: patch.setattr(owner, name, build(getattr(owner, name)))


def nothing(_: Callable) -> Callable:
    return lambda self, pairs: None


def first_layer_only(move: Callable) -> Callable:
    """All layers but the first stay as they were."""

    def faulty(self: KVCache, pairs: list) -> None:
        before = self.gpu.clone()
        move(self, pairs)
        self.gpu[1:] = before[1:]

    return faulty


def keys_and_values_mixed(pool: str) -> Callable:
    """What arrives in `pool` has its keys where the values belong."""

    def build(move: Callable) -> Callable:
        def faulty(self: KVCache, pairs: list) -> None:
            move(self, pairs)
            for _, target in pairs:
                blocks = getattr(self, pool)
                blocks[:, :, target] = blocks[:, :, target].flip(1)

        return faulty

    return build


def one_block_late(move: Callable) -> Callable:
    """Each block goes where the next one belongs."""
    return lambda self, pairs: move(self, [(pairs[i - 1][0], target) for i, (_, target) in enumerate(pairs)])


def moves_in_order(*names: str) -> Callable:
    """The block moves of a step in another order than swap in, swap out, copy."""

    def build(_: Callable) -> Callable:
        def faulty(self: LLMEngine, outputs: SchedulerOutputs) -> None:
            for name in names:
                pairs = getattr(outputs, f"blocks_to_{name}")
                getattr(self.kv_cache, name)(engine_module.one_source_each(pairs))

        return faulty

    return build


def compute_before(*names: str) -> Callable[[pytest.MonkeyPatch], None]:
    """These moves come after the computing that they were to come before."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        compute, late = LLMEngine._compute, []

        def move_the_others(self: LLMEngine, outputs: SchedulerOutputs) -> None:
            for name in ("swap_in", "swap_out", "copy"):
                pairs = engine_module.one_source_each(getattr(outputs, f"blocks_to_{name}"))
                if name in names:
                    late.append((name, pairs))
                else:
                    getattr(self.kv_cache, name)(pairs)

        def compute_then_move(self: LLMEngine, metadata: list) -> int:
            num_tokens = compute(self, metadata)
            while late:
                name, pairs = late.pop(0)
                getattr(self.kv_cache, name)(pairs)
            return num_tokens

        patch.setattr(LLMEngine, "_move_blocks", move_the_others)
        patch.setattr(LLMEngine, "_compute", compute_then_move)

    return plant


def first_source_counts(_: Callable) -> Callable:
    """Of several sources of a block the first is taken, whose owner may have given the block back since."""

    def faulty(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        first = dict(reversed([(target, source) for source, target in pairs]))
        return [(source, target) for target, source in first.items()]

    return faulty


def prefix_a_block_too_long(get: Callable) -> Callable:
    """A block is taken for computed that is not."""

    def faulty(self: BlockSpaceManager, seqs: list[Sequence]) -> list[int]:
        computed = get(self, seqs)
        return self.get_block_table(seqs[0])[: min(len(computed) + 1, len(self.block_tables[seqs[0].seq_id]) - 1)]

    return faulty


def table_of_another_sequence(prepare: Callable) -> Callable:
    """The last sequence of a step reads the blocks of the first."""

    def faulty(seqs: list[Sequence], block_tables: list[list[int]], *rest: object) -> object:
        return prepare(seqs, [*block_tables[:-1], block_tables[0]], *rest)

    return faulty


# Two groups come back in one step, and what the first leaves the second takes.
TAKEN_AGAIN = Scenario(
    tuple(workload(20, branches=True)),
    {"num_gpu_blocks": 26, "num_cpu_blocks": 400, "mode": "swap", "caching": True},
    lambda step: len(targets(step.blocks_to_swap_in)) < len(step.blocks_to_swap_in),
)
# The same, and the second would be swapped into what is still to be copied.
COPY_OF_GIVEN_BACK = Scenario(
    (Ask(PROMPT[:12], greedy(3)), Ask((7, 8, 9), greedy(4, n=2)), Ask((3, 2, 1), greedy(4))),
    {"num_gpu_blocks": 5, "num_cpu_blocks": 20, "mode": "swap", "caching": True, "max_model_len": 20},
    lambda step: step.blocks_to_swap_in and step.blocks_to_copy,
)

FAULTS = {
    "no-op copy": (BRANCHES, replace(KVCache, "copy", nothing)),
    "copy of one layer": (BRANCHES, replace(KVCache, "copy", first_layer_only)),
    "copy mixes keys and values": (BRANCHES, replace(KVCache, "copy", keys_and_values_mixed("gpu"))),
    "copy after compute": (BRANCHES, compute_before("copy")),
    "no-op swap in": (SWAP, replace(KVCache, "swap_in", nothing)),
    "no-op swap out": (SWAP, replace(KVCache, "swap_out", nothing)),
    "swap in of one layer": (SWAP, replace(KVCache, "swap_in", first_layer_only)),
    "swap in mixes keys and values": (SWAP, replace(KVCache, "swap_in", keys_and_values_mixed("gpu"))),
    "swap out mixes keys and values": (SWAP, replace(KVCache, "swap_out", keys_and_values_mixed("cpu"))),
    "swap out mixes blocks": (SWAP, replace(KVCache, "swap_out", one_block_late)),
    "swap in after compute": (SWAP, compute_before("swap_in")),
    "swap out after compute": (WRITE_INTO_SWAPPED_OUT, compute_before("swap_out")),
    "copy before swap out": (
        COPY_INTO_SWAPPED_OUT,
        replace(LLMEngine, "_move_blocks", moves_in_order("swap_in", "copy", "swap_out")),
    ),
    "copy before swap in": (
        COPY_OF_SWAPPED_IN,
        replace(LLMEngine, "_move_blocks", moves_in_order("copy", "swap_in", "swap_out")),
    ),
    "first source of a block": (TAKEN_AGAIN, replace(engine_module, "one_source_each", first_source_counts)),
    "swap in over what is to be copied": (
        COPY_OF_GIVEN_BACK,
        replace(Scheduler, "_copies_read_free_blocks", lambda _: lambda self, outputs: False),
    ),
    "cached prefix a block too long": (
        CACHED,
        replace(BlockSpaceManager, "get_common_computed_block_ids", prefix_a_block_too_long),
    ),
    "table of another sequence": (TWO, replace(engine_module, "prepare_step", table_of_another_sequence)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_changes_tokens(tiny_model: LoadedModel, alone: Alone, monkeypatch, name: str):
    """A15 among them: copies that are scheduled and never carried out."""
    scenario, plant = FAULTS[name]
    differences, steps = scenario.run(tiny_model, alone)
    assert differences == []
    assert any(scenario.situation(step) for step in steps)
    plant(monkeypatch)
    differences, _ = scenario.run(tiny_model, alone)
    assert differences
    assert all("alone it is" in difference for difference in differences)


@pytest.mark.parametrize("names", [("swap_in", "swap_out"), ("swap_out", "swap_in")])
def test_swap_in_comes_before_swap_out(tiny_model: LoadedModel, monkeypatch, names: tuple[str, str]):
    """By hand, for the scheduler never asks for both in one step: CPU block 0 is left by one and taken by another."""
    engine = engine_of(tiny_model, 16, 4)
    engine.kv_cache.cpu[:, :, 0] = 1.0
    engine.kv_cache.gpu[:, :, 5] = 2.0
    if names != ("swap_in", "swap_out"):
        replace(LLMEngine, "_move_blocks", moves_in_order(*names))(monkeypatch)
    engine._move_blocks(SchedulerOutputs(blocks_to_swap_in=[(0, 3)], blocks_to_swap_out=[(5, 0)]))
    came_back = engine.kv_cache.gpu[:, :, 3]
    right = names == ("swap_in", "swap_out")
    assert torch.equal(came_back, torch.full_like(came_back, 1.0 if right else 2.0))
    assert bool((engine.kv_cache.cpu[:, :, 0] == 2.0).all())
