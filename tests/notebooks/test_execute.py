"""Notebooks are run from a clean kernel and stored without anything that the next run would change."""

from pathlib import Path

import pytest
from builders import code, markdown, notebook

from refimpl import notebooks


def save(path: Path, *sources: str, **metadata: object) -> Path:
    cells = [code(source, f"cell-{number}") for number, source in enumerate(sources, 1)]
    nb = notebook(markdown("# A notebook", "title"), *cells)
    nb.metadata.update(metadata)
    notebooks.write(nb, path)
    return path


def test_a_run_stores_outputs_counts_and_nothing_of_this_machine(tmp_path: Path) -> None:
    sources = [
        "print('first', flush=True)\nprint('second', flush=True)",
        "import pathlib\npathlib.Path('beside.txt').exists()",
        "import ipywidgets\nipywidgets.IntSlider(value=3)",
        "ipywidgets.interact(lambda blocks: print(blocks), blocks=(1, 4))",
    ]
    path = save(tmp_path / "lesson.ipynb", *sources)
    (tmp_path / "beside.txt").write_text("The kernel works in the notebook's own folder.")
    nb = notebooks.read(path)
    nb.cells[1].execution_count = 41
    nb.cells[1].metadata.execution = {"iopub.status.busy": "2026-01-01T00:00:00Z"}
    nb.metadata.language_info.version = "3.99.0"
    path.write_text(notebooks.nbformat.writes(nb))

    assert notebooks.execute([path]) == 0
    first = path.read_bytes()
    ran = [cell for cell in notebooks.read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in ran] == [1, 2, 3, 4]
    assert [output.text for output in ran[0].outputs] == ["first\nsecond\n"]
    assert ran[1].outputs[0].data["text/plain"] == "True"
    assert list(ran[2].outputs[0].data) == ["text/plain"]
    assert not [name for name in (b"3.99.0", b"iopub", b"model_id") if name in first]

    assert notebooks.execute([path]) == 0
    assert path.read_bytes() == first


def test_a_failing_cell_is_named_and_the_file_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "lesson.ipynb", "blocks = 3", "blocks.free()", "print('never')")
    before = path.read_bytes()
    assert notebooks.execute([path]) == 1
    error = capsys.readouterr().err
    assert "lesson.ipynb: cell 2 (id cell-2, `blocks.free()`) raised AttributeError" in error
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["lesson.ipynb"]


def test_an_endless_loop_and_a_dead_kernel_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    endless = save(tmp_path / "endless.ipynb", "while True:\n    pass")
    assert notebooks.execute([endless], timeout=2) == 1
    assert "cell 1 (id cell-1, `while True:`) did not end within 2 s" in capsys.readouterr().err
    dead = save(tmp_path / "dead.ipynb", "import os\nos._exit(1)")
    assert notebooks.execute([dead]) == 1
    assert "the kernel died in cell 1" in capsys.readouterr().err


def test_an_expected_error_must_be_tagged_to_pass(tmp_path: Path) -> None:
    path = tmp_path / "lesson.ipynb"
    notebooks.write(notebook(code("1 / 0", "divide", tags=("raises-exception",))), path)
    assert notebooks.execute([path]) == 0
    assert notebooks.read(path).cells[0].outputs[0].ename == "ZeroDivisionError"


def test_what_is_no_notebook_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.ipynb"
    broken.write_text("not json")
    assert notebooks.execute([broken]) == 1
    assert "broken.ipynb is not a Jupyter notebook" in capsys.readouterr().err
    assert broken.read_text() == "not json"
    assert notebooks.execute([tmp_path / "none.ipynb"]) == 2
    assert "There is no file" in capsys.readouterr().err
