"""`progress`: bars that say what the saved notebooks hold now, in a terminal, as JSON and in JupyterLab."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from refimpl import cli, work
from refimpl import progress as module
from refimpl.checks import steps
from refimpl.progress import Chapter, Progress, progress

ROOT = Path(__file__).parents[1]
BLOCK = "01_physical_token_block/01_physical_token_block.ipynb"
TABLE = "02_block_table/02_block_table.ipynb"
POOL = "03_uncached_allocator/03_uncached_allocator.ipynb"


def copy(chapter: str, folder: Path, solved: bool = False) -> Path:
    """A chapter's notebook in a folder, as `make work` puts it there, or with its answers."""
    target = folder / chapter
    target.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(ROOT / ("solutions" if solved else "exercises") / chapter, target))


def change(path: Path, cell_id: str, source: str) -> None:
    """Save other code in a cell, its old outputs left as they are."""
    nb = json.loads(path.read_text("utf-8"))
    (cell,) = [cell for cell in nb["cells"] if cell["id"] == cell_id]
    cell["source"] = source
    path.write_text(json.dumps(nb), "utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chapter 1 solved, chapter 2 untouched, the first step of chapter 3 wrong, and no others."""
    folder = tmp_path_factory.mktemp("course") / "my work"
    copy(BLOCK, folder, solved=True)
    copy(TABLE, folder)
    pool = copy(POOL, folder, solved=True)
    change(
        pool,
        "03-allocate-answer",
        "@add_to_class(UncachedBlockAllocator)\ndef allocate(self, block_hash=None, num_hashed_tokens=0):\n"
        "    return self.free_blocks.pop()",
    )
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Progress:
    return progress(folder)


def by_number(found: Progress) -> dict[str, Chapter]:
    return {chapter.number: chapter for chapter in found.chapters}


def test_every_chapter_has_one_line_and_the_points_are_those_of_its_steps(found: Progress) -> None:
    """P4: from the package's own ids and points."""
    numbers = sorted({step.exercise_id[:2] for step in steps().values()} | {"00", "13"})
    assert [chapter.number for chapter in found.chapters] == numbers
    lines = repr(found).splitlines()
    assert [line[:2] for line in lines[: len(numbers)]] == numbers
    for chapter in found.chapters:
        of_steps = sum(step.points for step in steps().values() if step.exercise_id[:2] == chapter.number)
        assert chapter.max_points == (0 if chapter.number == "00" else of_steps)
    assert len(lines) == len(numbers) + 2


def test_a_chapters_name_is_that_of_its_lesson(found: Progress) -> None:
    lessons = {path.stem.replace("_", " ") for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    assert lessons - {f"{chapter.number} {chapter.name}" for chapter in found.chapters} == set()


def test_a_line_has_a_bar_the_points_and_what_is_next(found: Progress) -> None:
    lines = {line[:2]: line for line in repr(found).splitlines()}
    assert lines["01"] == f"01 physical token block     [{'#' * 20}]   10 of 10   done"
    assert lines["02"].startswith(f"02 block table              [{'-' * 20}]    0 of 10   02-num-required-blocks: ")
    half = re.fullmatch(r"03 uncached allocator       \[(#+)(-+)\] +([\d.]+) of 10   (03-allocate: .*)", lines["03"])
    assert half
    assert float(half[3]) == by_number(found)["03"].points
    assert len(half[1]) == round(2 * float(half[3]))
    assert half[4].count(".") <= 1, "one sentence"


def test_a_chapter_without_a_file_says_how_to_get_it(found: Progress) -> None:
    (line,) = [line for line in repr(found).splitlines() if line.startswith("04")]
    assert line.endswith("0 of 10   no notebook yet: `make work` copies it")


def test_a_lesson_without_an_exercise_has_no_bar(found: Progress) -> None:
    lines = {line[:2]: line for line in repr(found).splitlines()}
    assert lines["00"].split("  ")[-1].strip() == "a lesson, with a first check to try in it"
    assert lines["13"].split("  ")[-1].strip() == "a lesson"
    assert "[" not in lines["00"] + lines["13"]


def test_it_ends_with_the_total_and_the_file_to_open(found: Progress, folder: Path) -> None:
    total, following = repr(found).splitlines()[-2:]
    points = 10 + by_number(found)["03"].points
    assert re.search(rf"total .*\] +{points:g} of {found.max_points}$", total)
    assert following == f"next: open {folder / TABLE}, step 02-num-required-blocks"


def test_points_are_computed_from_the_code_and_not_from_saved_outputs(found: Progress) -> None:
    """The file still shows the outputs of the right answer."""
    allocate = by_number(found)["03"].results[0]
    assert (allocate.exercise_id, allocate.passed) == ("03-allocate", False)


def result(outcome: Any, points: float = 0.0, message: str = "So it is. And more.") -> work.CheckResult:
    return work.CheckResult("03-free", "give back", outcome, points, 4, message)


@pytest.mark.parametrize(
    ("points", "bar"),
    [
        (0, "-" * 20),
        (0.01, "#" + "-" * 19),
        (5, "#" * 10 + "-" * 10),
        (9.99, "#" * 19 + "-"),
        (10, "#" * 20),
    ],
)
def test_a_bar_is_full_or_empty_only_when_that_is_true(points: float, bar: str) -> None:
    assert module._bar(points, 10) == bar


def test_what_is_next_when_all_is_done_and_when_a_chapter_has_no_file() -> None:
    done = Chapter("03", "pool", Path("my_work/03.ipynb"), (result("passed", 4.0),), 4)
    lesson = Chapter("13", "after v0", None, (), 0)
    assert Progress(Path("my_work"), (done, lesson)).next == "every step has passed; 13_after_v0 is the last lesson"
    absent = Chapter("04", "cache", None, (), 10)
    assert Progress(Path("my_work"), (done, absent)).next == "`make work`, which copies the exercise of chapter 04"
    begun = Chapter("05", "admission", Path("my_work/05.ipynb"), (result("passed", 4.0), result("wrong", 1.0)), 8)
    assert Progress(Path("my_work"), (done, begun, absent)).next == "open my_work/05.ipynb, step 03-free"
    assert begun.next == "03-free: So it is."


# The command


def test_the_command_prints_the_same_lines_as_they_come_and_exits_0(
    folder: Path, found: Progress, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["progress", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (repr(found) + "\n", "")

    def interrupted() -> Any:
        yield found.chapters[0]
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "chapters", lambda folder: interrupted())
    assert cli.main(["progress", str(folder)]) == 130
    assert capsys.readouterr().out == found.chapters[0].line() + "\n", "what was known is there"


def test_the_command_reads_my_work_and_says_how_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["progress"]) == 2
    missing = "progress: there is no folder my_work: `make work` makes my_work and copies the exercises there\n"
    assert tuple(capsys.readouterr()) == ("", missing)
    (tmp_path / "my_work").mkdir()
    assert cli.main(["progress", "--json"]) == 2
    empty = "progress: my_work holds no exercise of the course: `make work` copies them there\n"
    assert tuple(capsys.readouterr()) == ("", empty)


def test_the_same_as_json(found: Progress, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["progress", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == json.loads(json.dumps(found.as_json()))
    assert (said["points"], said["max_points"], said["next"]) == (found.points, found.max_points, found.next)
    third = said["chapters"][3]
    assert (third["number"], third["path"]) == ("03", str(folder / POOL))
    assert [step["outcome"] for step in third["steps"]] == [step.outcome for step in by_number(found)["03"].results]


def test_of_two_copies_the_one_saved_last_counts_and_other_files_are_passed_over(tmp_path: Path) -> None:
    old, new = copy(POOL, tmp_path / "a", solved=True), copy(POOL, tmp_path / "b")
    os.utime(old, (time.time() - 60,) * 2)
    (tmp_path / "notes.ipynb").write_text("not a notebook")
    shutil.copy(ROOT / "notebooks/03_uncached_allocator.ipynb", tmp_path)
    chapter = by_number(progress(tmp_path))["03"]
    assert (chapter.path, chapter.points) == (new, 0)


def test_a_chapter_that_needs_what_is_not_installed_says_so_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imported in a given cell, or by the check itself."""
    pool = copy(POOL, tmp_path, solved=True)
    cells = json.loads(pool.read_text("utf-8"))["cells"]
    (imports,) = ["".join(cell["source"]) for cell in cells if cell["id"] == "given-imports"]
    change(pool, "given-imports", "import torch_of_another_machine.nn\n" + imports)
    copy(TABLE, tmp_path, solved=True)
    copy(BLOCK, tmp_path, solved=True)
    examine = work.examine

    def needs_triton(step: Any, subject: Any) -> Any:
        if step.exercise_id.startswith("02"):
            raise ModuleNotFoundError("No module named 'triton'", name="triton.language")
        return examine(step, subject)

    monkeypatch.setattr(work, "examine", needs_triton)
    chapters = by_number(progress(tmp_path))
    absent = "is not installed here; `make lab` installs what the course needs."
    assert chapters["03"].next == f"03-allocate: This needs torch_of_another_machine, which {absent}"
    assert chapters["02"].next == f"02-num-required-blocks: This needs triton, which {absent}"
    assert chapters["01"].next == "done"


def test_without_torch_the_chapters_that_need_it_say_so_and_the_others_have_their_points(folder: Path) -> None:
    code = (
        "import json, sys; sys.modules['torch'] = None; from refimpl.progress import progress;"
        "print(json.dumps(progress(sys.argv[1]).as_json()))"
    )
    ran = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    absent = [chapter["number"] for chapter in found["chapters"] if "This needs torch, which is" in chapter["next"]]
    assert absent
    assert min(absent) >= "09"
    assert found["chapters"][1]["points"] == 10
    assert found["next"] == f"open {folder / TABLE}, step 02-num-required-blocks"


def test_importing_it_loads_nothing_heavy_and_neither_does_a_folder_without_exercises(tmp_path: Path) -> None:
    code = (
        "import sys; from refimpl.progress import progress; print(progress(sys.argv[1]));"
        "print([name for name in ('torch', 'numpy', 'matplotlib', 'IPython', 'nbformat') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


# In JupyterLab


class Words(HTMLParser):
    """The text of some HTML, and what each tag says of itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_data(self, data: str) -> None:
        self.words.extend(data.split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))


def test_the_bars_say_in_words_what_the_lines_say(found: Progress) -> None:
    shown = Words(found._repr_html_())
    words = " ".join(shown.words)
    for chapter in found.chapters:
        assert f"{chapter.number} {chapter.name}" in words
        assert chapter.next.replace("`", "") in words.replace(" :", ":").replace("( ", "(") or chapter.is_done
    assert words.count("✔ done") == 1
    assert f"total {found.points:g} of {found.max_points}" in words
    labels = [tag["aria-label"] for _, tag in shown.tags if tag.get("role") == "img"]
    assert labels[0] == "10 of 10 points"
    assert labels[-1] == f"{found.points:g} of {found.max_points} points"
    assert len(labels) == sum(chapter.max_points > 0 for chapter in found.chapters) + 1


def test_the_next_notebook_is_a_link_from_where_the_reader_is(
    found: Progress, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "02_block_table")
    (link,) = [tag["href"] for name, tag in Words(found._repr_html_()).tags if name == "a"]
    assert link == "02_block_table.ipynb"
    monkeypatch.chdir(folder.parent)
    (link,) = [tag["href"] for name, tag in Words(found._repr_html_()).tags if name == "a"]
    assert link == f"my%20work/{TABLE}"


def test_every_colour_comes_from_the_theme_with_a_fallback(found: Progress) -> None:
    """V4: text and ground are set together."""
    styles = " ".join(tag.get("style") or "" for _, tag in Words(found._repr_html_()).tags)
    colours = re.findall(r"(?:color|background|border): ([^;]+)", styles)
    assert colours
    assert all(re.search(r"var\(--jp-[\w-]+, #[0-9a-f]{6}\)", colour) for colour in colours), colours
    frame = Words(found._repr_html_()).tags[0][1]["style"] or ""
    assert "color: var(--jp-ui-font-color1" in frame
    assert "background: var(--jp-layout-color1" in frame


def test_what_a_learner_wrote_is_text_in_the_page() -> None:
    chapter = Chapter("03", "pool", Path('<b>"a".ipynb'), (result("wrong", 0.0, "`<b>x</b>` is <i>wrong</i>."),), 4)
    shown = Words(Progress(Path("."), (chapter,))._repr_html_())
    assert {name for name, _ in shown.tags} <= {"div", "code", "a", "strong"}


def test_a_folder_without_work_is_one_sentence_and_no_traceback(tmp_path: Path) -> None:
    none = progress(tmp_path / "my_work")
    assert "`make work`" in repr(none)
    assert "<code>make work</code>" in none._repr_html_()
