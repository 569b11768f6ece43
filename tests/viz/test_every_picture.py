"""What every picture keeps to: readable by everyone on light and dark pages, the same every time, soon drawn."""

import random
import time
from types import SimpleNamespace

import pytest
from looks import LearnersBlock, contrasts_of_text, overwritten, pixels, runs_off

from refimpl import AllocStatus
from refimpl.viz import draw, sheet


def step(number: int, **changes: object) -> SimpleNamespace:
    """A recorded step of a learner's own making."""
    pools = {
        "gpu": SimpleNamespace(device="GPU", num_blocks=8, num_free=8 - number % 9, tables={}, cached=()),
        "cpu": SimpleNamespace(device="CPU", num_blocks=4, num_free=4, tables={}, cached=()),
    }
    names = dict.fromkeys(
        ["waiting", "running", "swapped", "scheduled", "recomputed", "swapped_out", "swapped_in", "ignored", "aborted"],
        (),
    )
    others = {"kind": "decode", "watermark_blocks": 1, "num_batched_tokens": 1, "blocks_to_copy": (), "running": ("a",)}
    return SimpleNamespace(**{**pools, **names, "number": number, **others, **changes})


def full_pool() -> draw.Picture:
    """Eight owners, free, kept, shared by 2, 3 and 5, a mismatch."""
    by_two, by_three, by_five = LearnersBlock(40, 2), LearnersBlock(41, 3), LearnersBlock(42, 5)
    tables = {f"request {i}": [LearnersBlock(4 * i + j) for j in range(3)] for i in range(8)}
    for i, table in enumerate(tables.values()):
        table += [by_two] * (i < 2) + [by_three] * (i < 3) + [by_five] * (i < 5)
    tables["request 0"].append(LearnersBlock(50, 7))
    return draw.pool(64, tables, cached=[60, 61], title="Every mark there is")


def manager() -> SimpleNamespace:
    """A learner's own manager, with a block lost and sequences on both devices."""
    devices = {name: SimpleNamespace(name=name) for name in ("GPU", "CPU")}
    gpu, cpu = LearnersBlock(3), LearnersBlock(2)
    gpu.device, cpu.device = devices["GPU"], devices["CPU"]
    return SimpleNamespace(
        block_tables={0: [gpu], 1: [cpu]},
        gpu_allocator=SimpleNamespace(get_num_total_blocks=lambda: 6),
        cpu_allocator=SimpleNamespace(get_num_total_blocks=lambda: 4),
        get_num_free_gpu_blocks=lambda: 4,
        get_num_free_cpu_blocks=lambda: 3,
        block_size=4,
    )


def some_steps(count: int) -> list[SimpleNamespace]:
    steps = [step(i + 1) for i in range(count)]
    steps[1] = step(2, kind="prefill", swapped_out=("a request with a long name",), aborted=("b", "c"))
    steps[2] = step(3, kind="idle", running=(), blocks_to_copy=((3, 4),))
    return steps


SHARES = {"used": 0.2, "reserved": 0.1, "internal": 0.3, "external": 0.3}
PICTURES = {
    "admission": lambda: draw.admission(
        lambda required, free: AllocStatus(min(3, 1 + required * free % 5)) if required * free % 5 < 4 else None,
        num_gpu_blocks=12,
        marks={"A": (3, 12), "B": (7, 9), "a long name": (4, 1)},
        title="Every answer there is",
    ),
    "pool": full_pool,
    "memory": lambda: draw.memory(manager(), title="A lost block"),
    "tables with arrows": lambda: draw.tables(
        {"A": [7, 5], "a longer name": [7, 3], "C": []}, lengths={"A": 6, "C": 3}, block_size=4, copies=[(5, 3)]
    ),
    "tables in rows": lambda: draw.tables({f"s{i}": range(9 * i, 9 * i + 9) for i in range(8)}, copies=[(80, 3)]),
    "timeline of 5": lambda: draw.timeline(some_steps(5), title="Five steps"),
    "timeline of 500": lambda: draw.timeline(some_steps(500)),
    "waste": lambda: draw.waste({"max length": SHARES, "a policy with a name of many letters": SHARES | {"used": 0.3}}),
    "sweep": lambda: draw.sweep(
        "block_size", {"8": {"waste": 0.02, "tokens/s": 240}, "16": {"waste": 0.04, "tokens/s": 251.5}}
    ),
    "attention_gather": lambda: draw.attention_gather([7, 2, 5, 6], 35, 16),
    "newest_token": lambda: draw.newest_token({"sampled": (9, 8, [7, 6]), "append_slots": (9, 8, [7, 6, 5])}, 4),
    "compare numbers": lambda: draw.compare([1, 2.25, 3], [1, 2.5, 3, 4]),
    "compare tables": lambda: draw.compare({"A": [1], "B": []}, {"A": [2], "C": [3]}),
    "compare pools": lambda: draw.compare({"A": [LearnersBlock(0)]}, {"A": [LearnersBlock(1)]}, num_blocks=4),
    "compare managers": lambda: draw.compare(manager(), manager()),
}


@pytest.fixture(params=PICTURES, scope="module")
def picture(request: pytest.FixtureRequest) -> draw.Picture:
    return PICTURES[request.param]()


@pytest.mark.parametrize("theme", ["#ffffff", "#111111"], ids=["light theme", "dark theme"])
def test_all_text_has_a_contrast_of_at_least_4_5_to_1(picture, theme):
    assert min(contrasts_of_text(picture, theme)) >= 4.5


def test_nothing_is_drawn_over_text(picture):
    assert not overwritten(picture)


def test_nothing_runs_off_the_paper(picture):
    assert not runs_off(picture)


def test_the_paper_is_opaque_and_the_corners_are_not(picture):
    alpha = pixels(picture)[..., 3]
    assert alpha[0, 0] == 0
    assert alpha[8:-8, 8:-8].min() >= 240, "less than what the palette of 256 rounds away"


def test_a_picture_is_the_same_every_time(picture, request):
    again = PICTURES[request.node.callspec.params["picture"]]()
    assert again.describe() == picture.describe()
    assert again.png() == picture.png()


def test_a_picture_for_a_widget_is_smaller_and_says_the_same(picture):
    quick, full = pixels(picture, quick=True), pixels(picture)
    assert quick.shape[1] == pytest.approx(full.shape[1] * sheet.QUICK_SHARPNESS / sheet.SHARPNESS, abs=1)
    assert quick[..., :3].mean() == pytest.approx(full[..., :3].mean(), abs=3)


def test_a_picture_for_a_widget_is_packed_in_the_fastest_way(picture):
    """What zlib's header says of its level; packing as usual takes a tenth of a redraw more."""
    fastest, usual = ((picture.png(quick=quick).partition(b"IDAT")[2][1] >> 6) for quick in (True, False))
    assert (fastest, usual) == (0, 2)


def test_the_door_has_every_picture():
    assert {name.split()[0] for name in PICTURES} | {"Block", "Picture"} == set(draw.__all__)


def test_256_blocks_are_drawn_soon_enough_for_a_widget():
    """About 55 ms of processor time where this was written; the bound leaves room for slower machines."""
    blocks = [LearnersBlock(number) for number in range(256)]
    random.Random(0).shuffle(blocks)
    tables = {f"seq {i}": blocks[25 * i : 25 * i + 25] for i in range(10)}
    draws = [lambda: draw.pool(256, tables), lambda: draw.tables(tables)]
    for make in draws:
        make().png(quick=True)  # shapes of letters are kept from here on
        start = time.process_time()
        make().png(quick=True)
        assert time.process_time() - start < 0.3
