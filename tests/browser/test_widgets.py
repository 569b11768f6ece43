"""The widgets in a real JupyterLab: played, stepped and pressed by keyboard, and read without a kernel (F14)."""

import sys
from pathlib import Path
from typing import Any

import pytest
from driver import RAN, OpenNotebook, photograph

from refimpl import notebooks

sys.path.insert(0, str(Path(__file__).parents[1] / "notebooks"))
from builders import code, markdown, notebook  # noqa: E402

NOTEBOOK = "widgets.ipynb"
SETUP = """
from refimpl import BlockSpaceManager, CacheConfig, Scheduler, SchedulerConfig, Sequence, SequenceGroup
from refimpl.simulation.recording import Recorder
from refimpl.viz.widgets import PoolExplorer, StepPlayer

cache_config = CacheConfig(block_size=4, num_gpu_blocks=8, num_cpu_blocks=8)
scheduler = Scheduler(SchedulerConfig(max_model_len=64, preemption_mode="swap"), cache_config)
for place, request_id in enumerate(["chat-0", "chat-1", "chat-2"]):
    seq = Sequence(place, range(100 * place, 100 * place + 7 + place), 4)
    scheduler.add_seq_group(SequenceGroup(request_id, [seq], arrival_time=float(place)))
recorder = Recorder(scheduler)
for number in range(14):
    _, outputs = scheduler.schedule(number / 10)
    recorder.record(outputs, number / 10)
    for entry in outputs.scheduled_seq_groups:
        entry.seq_group.seqs[0].append_token_id(1)
"""
SAVE_AND_END = """async () => {
    await window.jupyterapp.commands.execute('docmanager:save');
    await window.jupyterapp.shell.currentWidget.sessionContext.shutdown();
    await window.jupyterapp.commands.execute('application:close');
}"""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One notebook as it stands in the repository: run, and saved without the state of its widgets."""
    folder = tmp_path_factory.mktemp("course")
    nb = notebook(
        markdown("# Widgets", "title"),
        code(SETUP, "setup"),
        code("player = StepPlayer(recorder, start=3)\nplayer", "player"),
        code("explorer = PoolExplorer(BlockSpaceManager(4, 12, 0))\nexplorer", "explorer"),
    )
    notebooks.write(notebooks.run(nb, folder), folder / NOTEBOOK)
    return folder


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect

    return expect(locator)


def outputs(cell: Any) -> Any:
    return cell.locator(".jp-OutputArea-child")


def first_line(cell: Any) -> Any:
    """What the widget says first."""
    return cell.locator(".refimpl-live strong").first


def assert_picture_and_words_are_there(cell: Any, name: str) -> None:
    expect(outputs(cell).nth(1).locator("img")).to_be_visible(timeout=RAN)
    outputs(cell).nth(2).get_by_text(f"{name}, in words").click()
    expect(outputs(cell).nth(2).get_by_text("GPU pool: ")).to_be_visible()


def test_F14_a_notebook_that_nobody_ran_shows_pictures_and_words(page: Any, course: Path) -> None:
    opened = OpenNotebook(page, course, NOTEBOOK)
    player, explorer = opened.cell("player"), opened.cell("explorer")
    expect(outputs(player).first).to_have_text(
        "A player of 14 steps, at step 3. Its controls work while a kernel runs: run this cell."
    )
    photograph(page, player, "player-without-kernel")
    assert_picture_and_words_are_there(player, "A player of 14 steps, at step 3")
    assert_picture_and_words_are_there(explorer, "An explorer of a block manager")


def test_the_player_plays_and_steps_by_keyboard(page: Any, course: Path) -> None:
    opened = OpenNotebook(page, course, NOTEBOOK)
    opened.run_all()
    player = opened.cell("player")
    line = first_line(player)
    expect(line).to_contain_text("Step 3 of 14", timeout=RAN)
    for place in (1, 2):
        expect(outputs(player).nth(place)).to_be_hidden()

    handle = player.locator(".noUi-handle")
    for key, place in (("ArrowRight", 4), ("ArrowUp", 5), ("ArrowLeft", 4), ("End", 14), ("Home", 1)):
        handle.press(key)
        expect(line).to_contain_text(f"Step {place} of 14", timeout=RAN)
    forward = player.get_by_role("button", name="Next")
    for key, place in (("Enter", 2), ("Space", 3)):
        forward.press(key)
        expect(line).to_contain_text(f"Step {place} of 14", timeout=RAN)
    player.get_by_role("button", name="Back").press("Enter")
    expect(line).to_contain_text("Step 2 of 14", timeout=RAN)

    player.locator(".widget-play button").first.press("Enter")
    expect(line).to_contain_text("Step 14 of 14", timeout=RAN)
    text = player.inner_text()
    assert "Swapped: chat-1, chat-2" in text
    assert "C (chat-2)" in text
    alt = player.locator(".refimpl-live img").get_attribute("alt")
    assert "C holds" in alt
    photograph(page, player, "player")


def test_the_explorer_refuses_a_swap_without_room_on_the_cpu_in_a_sentence(page: Any, course: Path) -> None:
    opened = OpenNotebook(page, course, NOTEBOOK)
    explorer = opened.cell("explorer")
    if not first_line(explorer).count():
        opened.run_all()
    line = first_line(explorer)
    expect(line).to_contain_text("Nothing done yet", timeout=RAN)
    for button, said in (
        ("Add request", "A has 9 tokens in blocks 11 → 10 → 9"),
        ("Fork", "B goes on from A over the same blocks 11 → 10 → 9"),
        ("Append token", "block 9 is copied to 8 first, because it was shared"),
        (
            "Swap out",
            "can_swap_out says False. ValueError: Out of memory: needs 4 blocks, the CPU pool has 0 free of 0",
        ),
    ):
        explorer.get_by_role("button", name=button).press("Enter")
        expect(line).to_contain_text(said, timeout=RAN)
    assert "11 → 10 → 8" in explorer.inner_text()
    photograph(page, explorer, "explorer")


def test_F14_what_a_learner_saved_is_read_when_its_kernel_is_gone(page: Any, course: Path) -> None:
    """JupyterLab says `model not found` where the player was; the picture and the words below it come to light."""
    opened = OpenNotebook(page, course, NOTEBOOK)
    if not first_line(opened.cell("player")).count():
        opened.run_all()
    page.evaluate(SAVE_AND_END)
    player = OpenNotebook(page, course, NOTEBOOK).cell("player")
    assert_picture_and_words_are_there(player, "A player of 14 steps, at step 3")
    photograph(page, player, "player-of-a-dead-kernel")
