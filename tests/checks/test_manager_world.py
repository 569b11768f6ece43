"""The account that chapters 05 to 07 are checked against agrees with the reference, on everything that can happen."""

import random
from collections import Counter

from refimpl import BlockSpaceManager
from refimpl.checks import manager_comparison, manager_world
from refimpl.checks.step import Log


class EverythingWorld(manager_world.ManagerWorld):
    verbs = (
        "can_allocate",
        "allocate",
        "can_append_slots",
        "append_slots",
        "fork",
        "free",
        "can_swap_out",
        "swap_out",
        "can_swap_in",
        "swap_in",
    )


def test_account_and_reference_agree_on_random_histories() -> None:
    """A Violation is a fault of the account: it would tell a learner that right code is wrong."""
    log = Log(reached=True)
    performed: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for number in range(400):
        rng = random.Random(number)
        world = EverythingWorld(BlockSpaceManager, manager_world.random_sizes(rng), log)
        for _ in range(24):
            operation = rng.choice(list(world.choices()))
            world.perform(operation)
            performed[operation[0]] += 1
            seen["caching"] += world.account.caching
            seen["shared"] += any(world.account.owners(block) > 1 for block in world.comparison.numbers)
            seen["on the CPU"] += any(block.device.name == "CPU" for block in world.comparison.numbers)
    assert set(performed) == set(EverythingWorld.verbs)
    assert min(performed.values()) > 80, performed
    assert min(seen.values()) > 800, seen
    said = {name for module in (manager_comparison, manager_world) for name in properties(module)}
    assert set(log.tally) - {"runs without an error"} == said


def properties(module: object) -> set[str]:
    """The properties that a module compares: its constants in capitals that are sentences."""
    return {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
