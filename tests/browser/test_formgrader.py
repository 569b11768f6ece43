"""An instructor's quarter of an hour in formgrader: the class, an answer beside its panel, points by hand, the button.

The pages are opened at their addresses; nbgrader's menu, which leads there, is turned off for learners. With
SCREENSHOTS=folder the pictures of `solutions/README.md` are saved there.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from PIL import Image

from refimpl import cli

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests/grading"))  # whose conftest would put it there
from handed_in import HandedIn  # noqa: E402

from refimpl.checks.catalogue import find  # noqa: E402

pytest.importorskip("nbgrader", reason="formgrader needs nbgrader: make grader")
from nbgrader.api import Gradebook  # noqa: E402

CHAPTER = "03_uncached_allocator"
NAMES = {"ada": ("Ada", "Okafor"), "eoin": ("Eoin", "Walsh"), "ewa": ("Ewa", "Kowalska"), "jun": ("Jun", "Abe")}
COMMENT = "Who else holds this block? Count before you put it back."
WAITING = 60_000  # milliseconds for a table, or for marking one submission
LOADED = "!document.body.innerText.includes('Loading, please wait')"
WIDTH, HEIGHT, COLOURS = 1160, 640, 64


def jun() -> HandedIn:
    notebook = HandedIn("03")
    notebook.answer_wrongly(find("03-free"), ROOT / "tests/mutants/03-free/freed-while-shared.py")
    return notebook


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class of four, marked by `refimpl grade`."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("exercises", "solutions"):
        shutil.copytree(ROOT / name / CHAPTER, folder / name / CHAPTER)
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    untouched = HandedIn("03", is_solved=False).as_bytes()
    files = {"ada": HandedIn("03").as_bytes(), "eoin": untouched, "ewa": b"{", "jun": jun().as_bytes()}
    for student, content in files.items():
        path = folder / "submitted" / student / CHAPTER / f"{CHAPTER}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    assert cli.main(["grade", str(folder / "submitted"), "--course", str(folder)]) == 1
    with gradebook(folder) as book:
        for student, (first, last) in NAMES.items():
            book.update_or_create_student(student, first_name=first, last_name=last)
    return folder


def gradebook(course: Path) -> Gradebook:
    return Gradebook(f"sqlite:///{course / 'gradebook.db'}")


@pytest.fixture
def formgrader(page: Any) -> str:
    """Its address; what it wants from elsewhere, to set formulas, it does not get."""
    page.route("**/*", lambda route: route.continue_() if "127.0.0.1" in route.request.url else route.abort())
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    return "http://" + urlsplit(page.url).netloc + "/formgrader"


def test_the_class_is_listed_with_its_points(page: Any, formgrader: str) -> None:
    assert rows(page, formgrader) == {"ada": "10 / 10", "eoin": "0 / 10", "ewa": "0 / 10", "jun": "8.86 / 10"}
    save(page, "formgrader_class", height=480)


def test_points_and_a_comment_given_beside_the_panel_outlive_the_button(
    page: Any, formgrader: str, course: Path
) -> None:
    with gradebook(course) as book:
        number = book.find_submission_notebook(CHAPTER, CHAPTER, "jun").id
    page.goto(f"{formgrader}/submissions/{number}/")
    panel = page.locator('.refimpl-check[data-exercise="03-free"]')
    assert "A block comes back when its last owner lets go" in panel.inner_text()
    assert "YOUR CODE HERE" not in page.inner_text("body")
    write(page, "[id='03-free_extra_credit']", "0.5", "/api/grade/")
    write(page, ".nbgrader_cell:has-text('@add_to_class') textarea >> nth=1", COMMENT, "/api/comment/")
    panel.evaluate("(panel, to) => window.scrollBy(0, panel.getBoundingClientRect().bottom - to)", HEIGHT - 20)
    save(page, "formgrader_answer")

    assert rows(page, formgrader)["jun"] == "9.36 / 10"
    page.locator("tr", has_text="jun").locator(".autograde a").click()
    page.get_by_text("Successfully autograded").wait_for(timeout=WAITING)
    assert rows(page, formgrader)["jun"] == "9.36 / 10"
    with gradebook(course) as book:
        assert book.find_comment("03-free-answer", CHAPTER, CHAPTER, "jun").comment == COMMENT


def rows(page: Any, formgrader: str) -> dict[str, str]:
    """Student -> points, as Manage Submissions shows them."""
    page.goto(f"{formgrader}/manage_submissions/{CHAPTER}")
    page.wait_for_function(LOADED, timeout=WAITING)
    found = (row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all())
    return {cells[1]: cells[4] for cells in found}


def write(page: Any, field: str, text: str, saved_at: str) -> None:
    """Type into a field, go to the next one, and wait until formgrader has saved it."""
    with page.expect_response(lambda response: saved_at in response.url and response.request.method == "PUT"):
        page.locator(field).click()
        page.keyboard.type(text)
        page.keyboard.press("Tab")


def save(page: Any, name: str, height: int = HEIGHT) -> None:
    """The upper part of the page in few colours, where somebody asked for it."""
    if folder := os.environ.get("SCREENSHOTS"):
        path = Path(folder) / f"{name}.png"
        page.screenshot(path=path, clip={"x": 0, "y": 0, "width": WIDTH, "height": height}, animations="disabled")
        Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
