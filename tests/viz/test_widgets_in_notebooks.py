"""Widgets in notebooks: what a saved one keeps of them, that strict nbval agrees, and that JupyterLab can show them."""

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nbformat import NotebookNode

from refimpl import notebooks
from refimpl.viz import widgets_base
from refimpl.viz.widgets import lab_problem

sys.path.insert(0, str(Path(__file__).parents[1] / "notebooks"))
import repeat_nbval  # noqa: E402
import rules  # noqa: E402
from builders import code, markdown, notebook  # noqa: E402

SETUP = """
from refimpl import BlockSpaceManager, CacheConfig, Scheduler, SchedulerConfig, Sequence, SequenceGroup
from refimpl.simulation.recording import Recorder
from refimpl.viz.widgets import PoolExplorer, StepPlayer

scheduler = Scheduler(SchedulerConfig(max_model_len=64), CacheConfig(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0))
scheduler.add_seq_group(SequenceGroup("a", [Sequence(0, range(9), 4)]))
recorder = Recorder(scheduler)
for now in range(3):
    _, outputs = scheduler.schedule(now)
    recorder.record(outputs, now)
    outputs.scheduled_seq_groups[0].seq_group.seqs[0].append_token_id(1)
"""
PLAYER = "player = StepPlayer(recorder, start=2)\nassert player.place == 2\nplayer"
EXPLORER = "explorer = PoolExplorer(BlockSpaceManager(4, 8, 0))\nassert explorer.log == []\nexplorer"
CELLS = {  # id of the cell -> its source
    "setup": SETUP,
    "E08-player": PLAYER,
    "E08-player-ignored": PLAYER,
    "E08-player-in-words": "print(player.describe(2))",
    "E08-explorer": EXPLORER,
    "E08-explorer-ignored": EXPLORER,
    "E08-explorer-in-words": 'print(explorer.add(9))\nprint(explorer.swap_out("A"))',
    "E07-bar": "from tqdm.auto import tqdm\nfor _ in tqdm(range(3), disable=True):\n    player.go(1)",
    "E09-repr": "print(player)\nprint([explorer])",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> NotebookNode:
    """The cells as a clean run of `python -m refimpl execute` stores them."""
    cells = [code(source, name, tags=(rules.IGNORED,) * name.endswith("-ignored")) for name, source in CELLS.items()]
    return notebooks.run(notebook(markdown("# Widgets", "title"), *cells), tmp_path_factory.mktemp("run"))


def outputs(nb: NotebookNode, cell_id: str) -> list[Any]:
    return next(cell for cell in nb.cells if cell.id == cell_id).outputs


@pytest.mark.parametrize("cell_id", ["E08-player", "E08-explorer"])
def test_F14_a_saved_notebook_shows_a_picture_and_words_without_kernel_and_widget_state(saved, cell_id):
    line, picture, words = outputs(saved, cell_id)
    assert "run this cell" in line.data["text/plain"]
    assert "GPU pool: 8 blocks" in picture.metadata["image/png"]["alt"]
    assert picture.data["image/png"]
    assert picture.metadata["image/png"]["alt"] in words.data["text/plain"]
    assert "<details>" in words.data["text/html"]
    assert "GPU pool: 8 blocks" in words.data["text/html"]
    assert "widgets" not in saved.metadata


def test_the_cell_beside_the_player_says_what_the_player_shows(saved):
    _, _, words = outputs(saved, "E08-player")
    (printed,) = outputs(saved, "E08-player-in-words")
    assert printed.text.rstrip("\n") == words.data["text/plain"]


def test_E07_E08_E09_strict_nbval_passes_every_cell_tagged_or_not(saved, tmp_path):
    notebooks.write(saved, tmp_path / "widgets.ipynb")
    found, said = repeat_nbval.nbval([tmp_path], seed="1")
    assert len(found) == len(CELLS), said
    assert set(found.values()) == {"passed"}, said


def test_E08_strict_nbval_sees_a_player_that_shows_something_else(saved, tmp_path):
    nb = copy.deepcopy(saved)
    cell = next(cell for cell in nb.cells if cell.id == "E08-player")
    cell.source = PLAYER.replace("start=2", "start=3").replace("== 2", "== 3")
    notebooks.write(nb, tmp_path / "changed.ipynb")
    found, _ = repeat_nbval.nbval([tmp_path], seed="1")
    assert [name.split("::")[-1] for name, verdict in found.items() if verdict == "failed"] == ["Cell 1"]


def test_E09_our_rules_find_nothing_in_untagged_widget_cells(saved):
    """Neither an address nor a picture without words or without an assert."""
    found = [sentence for rule in rules.OF_STORED_OUTPUTS for sentence in rule(saved, Path("widgets.ipynb"))]
    assert [sentence for sentence in found if "-ignored)" not in sentence] == []


def test_F14_jupyterlab_has_the_manager_that_shows_the_widgets_of_this_ipywidgets():
    """`Error displaying widget: model not found` where it is missing or of another major."""
    command = [sys.executable, "-m", "jupyter", "labextension", "list"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    line = next(line for line in (ran.stdout + ran.stderr).splitlines() if "jupyterlab-manager" in line)
    plain = re.sub(r"\x1b\[\d*m", "", line)
    assert re.search(r"@jupyter-widgets/jupyterlab-manager v5\.\S+ enabled OK", plain), plain


VERSIONS = [
    ("8.1.9", "3.0.17", ""),
    ("8.1.9", None, ""),
    ("9.0.0", "3.0.17", ""),
    ("8.1.9", "1.1.7", 'ipywidgets 8.1.9 needs jupyterlab_widgets 3, and 1.1.7 is installed: run pip install "jup'),
    ("8.1.9", "4.0.0", "ipywidgets 8.1.9 needs jupyterlab_widgets 3, and 4.0.0 is installed"),
]


@pytest.mark.parametrize(("kernel", "lab", "said"), VERSIONS)
def test_F14_majors_that_differ_are_told_in_one_line_with_the_fix(monkeypatch, kernel, lab, said):
    """A JupyterLab in another environment is unknown, and no news."""

    def version(name):
        if name == "jupyterlab_widgets" and lab is None:
            raise widgets_base.PackageNotFoundError(name)
        return {"ipywidgets": kernel, "jupyterlab_widgets": lab}[name]

    monkeypatch.setattr(widgets_base, "version", version)
    assert lab_problem().startswith(said)
    assert bool(lab_problem()) == bool(said)
    assert "\n" not in lab_problem()


def test_F14_nothing_is_wrong_here():
    assert lab_problem() == ""


def test_F14_the_fix_stands_where_the_widget_would(monkeypatch, capsys):
    monkeypatch.setattr(widgets_base, "lab_problem", lambda: "the fix")
    shown = []
    monkeypatch.setattr(widgets_base, "display", lambda data, **_: shown.append(data))
    widgets_base.show(widgets_base.live_box([]), "A player", "no picture", "words")
    assert shown[0]["text/plain"] == "A player. the fix"


def test_words_that_look_like_html_are_left_as_words(monkeypatch):
    shown = []
    monkeypatch.setattr(widgets_base, "display", lambda data, **_: shown.append(data))
    widgets_base.show(widgets_base.live_box([]), "A player", "no picture", "<b>bold</b>")
    assert shown[-1]["text/plain"] == "<b>bold</b>"
    assert "<pre>&lt;b&gt;bold&lt;/b&gt;</pre>" in shown[-1]["text/html"]
