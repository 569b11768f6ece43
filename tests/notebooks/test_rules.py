"""Every notebook of the course obeys the rules, and every rule is broken by a notebook made for it."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import rules
from builders import (
    code,
    graded,
    lesson_notebook,
    markdown,
    notebook,
    printed,
    shown,
    solution_notebook,
    step,
)
from nbformat import NotebookNode

from refimpl import notebooks

ROOT = Path(__file__).parents[2]
PATHS = [path for folder in rules.RULES for path in sorted((ROOT / folder).rglob("[0-9]*.ipynb"))]
PATHS = [path for path in PATHS if ".ipynb_checkpoints" not in path.parts]
LESSON = Path("03_owners.ipynb")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_the_course_obeys_the_rules(path: Path) -> None:
    nb = rules.load(path)
    folder = path.relative_to(ROOT).parts[0]
    assert [sentence for rule in rules.RULES[folder] for sentence in rule(nb, path)] == []


@pytest.mark.parametrize("path", [path for path in PATHS if "notebooks" not in name_of(path)], ids=name_of)
def test_the_steps_are_those_of_the_checks(path: Path) -> None:
    from refimpl.checks import steps

    assert rules.checks_match(rules.load(path), path, steps()) == []


@pytest.mark.parametrize("path", [path for path in PATHS if "solutions" not in name_of(path)], ids=name_of)
def test_nothing_gives_a_solution_away(path: Path) -> None:
    hidden = rules.secrets([rules.load(path) for path in PATHS if "solutions" in name_of(path)])
    assert hidden, "no solution line was found, so this test could not fail"
    assert rules.leaks(rules.load(path), path, hidden) == []


def test_every_step_of_the_checks_has_its_solution() -> None:
    """L4. The toy step of chapter 00 stands in the lesson itself."""
    from refimpl.checks import steps

    nbs = {name_of(path): rules.load(path) for path in PATHS}
    solved = {
        cell.metadata.nbgrader.grade_id
        for name, nb in nbs.items()
        if name.startswith("solutions")
        for _, cell in rules.check_cells(nb)
    }
    assert solved == {exercise_id for exercise_id in steps() if not exercise_id.startswith("00-")}
    toys = "".join(cell.source for cell in nbs["notebooks/00_start_here.ipynb"].cells)
    assert all(f'check("{exercise_id}"' in toys for exercise_id in steps() if exercise_id.startswith("00-"))


def test_every_chapter_has_its_three_notebooks() -> None:
    chapters = {folder: {path.stem for path in PATHS if name_of(path).startswith(folder)} for folder in rules.RULES}
    assert chapters["solutions"]
    assert chapters["solutions"] == chapters["exercises"]
    assert chapters["solutions"] <= chapters["notebooks"]


CHAPTERS_1_TO_7 = {
    "01_physical_token_block",
    "02_block_table",
    "03_uncached_allocator",
    "04_cached_allocator",
    "05_can_allocate",
    "06_append_slots",
    "07_swap",
}


def test_chapters_1_to_7_are_there() -> None:
    for folder in ("notebooks", "solutions", "exercises"):
        assert {path.stem for path in PATHS if name_of(path).startswith(folder)} >= CHAPTERS_1_TO_7, folder


Spoil = Callable[[NotebookNode], object]


def one(*outputs: NotebookNode, source: str = "print(1)", tags: tuple[str, ...] = ()) -> NotebookNode:
    """Return a lesson of a title and one code cell."""
    return notebook(markdown("# A title", "title"), code(source, "cell", *outputs, tags=tags))


def says(source: str) -> NotebookNode:
    """Return a lesson of a title and one piece of text."""
    return notebook(markdown("# A title", "title"), markdown(source, "words"))


def spoiled(spoil: Spoil, make: Callable[[], NotebookNode] = lesson_notebook) -> NotebookNode:
    """Return a good notebook to which `spoil` has been done."""
    nb = make()
    spoil(nb)
    return nb


def cell_of(nb: NotebookNode, cell_id: str) -> NotebookNode:
    return next(cell for cell in nb.cells if cell.id == cell_id)


GOOD_FOLD = """
Before.

<details>
<summary>Why</summary>

Because.

</details>

After.
"""

WIDGET = "from ipywidgets import interact\ninteract(show, blocks=(1, 4))"
PNG = {"image_png": "aGVsbG8="}


def without_region(nb: NotebookNode) -> None:
    cell = cell_of(nb, "03-free-solution")
    cell.source = cell.source.replace("### BEGIN SOLUTION", "# begin").replace("### END SOLUTION", "# end")


def swap_answer_and_check(nb: NotebookNode) -> None:
    nb.cells[3], nb.cells[4] = nb.cells[4], nb.cells[3]


def meta(**changes: object) -> Spoil:
    return lambda nb: nb.metadata.course.update(changes)


BAD: list[tuple[rules.Rule, NotebookNode, str]] = [
    (
        rules.cells_ran_in_order,
        spoiled(lambda nb: cell_of(nb, "count").update(execution_count=None)),
        "never executed",
    ),
    (
        rules.cells_ran_in_order,
        spoiled(lambda nb: cell_of(nb, "count").update(execution_count=7)),
        "count 7, not 1",
    ),
    (rules.cells_are_python, one(source="allocator.free?"), "line 1 is not Python"),
    (rules.no_empty_cells, one(source=" \n"), "is empty"),
    (rules.no_empty_cells, says(""), "is empty"),
    (rules.tags_are_known, one(tags=("nbval-skip",)), "is tagged 'nbval-skip'"),
    (rules.tags_are_known, one(tags=("raises-exception",)), "is tagged 'raises-exception'"),
    (rules.tags_are_known, spoiled(lambda nb: nb.cells[1].metadata.update(tags=["remove-cell"])), "'remove-cell'"),
    (rules.nothing_hides_from_nbval, one(source="%%capture\nprint(1)"), "kept from nbval by %%capture"),
    (rules.nothing_hides_from_nbval, one(source="# NBVAL_IGNORE_OUTPUT\nprint(1)"), "kept from nbval by NBVAL"),
    (rules.nothing_hides_from_nbval, one(tags=(rules.IGNORED,)), "without a widget or a time"),
    (rules.nothing_on_stderr, one(printed("careful", "stderr")), "stderr"),
    (
        rules.no_stored_error,
        one(nbformat.v4.new_output("error", ename="ValueError", evalue="no", traceback=[])),
        "stores the error ValueError",
    ),
    (rules.no_trailing_semicolon, one(source="plot([1, 2]);"), "ends in ';'"),
    (
        rules.no_trailing_semicolon,
        one(source="plot([1, 2]);  # the comment changes nothing\n"),
        "ends in ';'",
    ),
    (rules.no_trailing_semicolon, one(source="if x:\n    plot(x);\nprint(x)"), "ends in ';'"),
    (rules.no_addresses, one(printed("<Block object at 0x7f00aa12bb34>")), "0x7f00aa12bb34"),
    (rules.no_addresses, one(shown(text_plain="<b at 0x10AB55c1>")), "0x10AB55c1"),
    (rules.no_value_of_this_process, one(source="print(hash('a'))"), "hash()"),
    (rules.no_value_of_this_process, one(source="id(object())"), "id()"),
    (rules.no_value_of_this_process, one(source="key = hash('a')\nprint(f'{key:x}')"), "hash()"),
    (
        rules.no_value_of_this_process,
        one(source="start = time.perf_counter()\ntime.perf_counter() - start"),
        "perf",
    ),
    (rules.no_value_of_this_process, one(source="display(datetime.datetime.now())"), "now()"),
    (rules.no_timings, one(source="%%time\nx = 1"), "%%time"),
    (rules.no_timings, one(source="%timeit x = 1"), "%timeit"),
    (rules.no_timings, one(printed("CPU times: user 1min 3s, sys: 850 µs")), "CPU times:"),
    (rules.no_timings, one(printed("3.2 ms ± 12 ns per loop")), "per loop"),
    (rules.no_timings, one(printed("100%|██████| 10/10 [00:00<00:00, 98.33it/s]")), "100%|"),
    (
        rules.is_canonical,
        spoiled(lambda nb: nb.metadata.kernelspec.update(name="vllm-course")),
        "vllm-course",
    ),
    (rules.is_canonical, spoiled(lambda nb: nb.metadata.pop("kernelspec")), "only its author's machine"),
    (
        rules.is_canonical,
        spoiled(lambda nb: nb.metadata.language_info.update(version="3.11.7")),
        "metadata of the machine",
    ),
    (
        rules.is_canonical,
        spoiled(lambda nb: nb.cells[0].metadata.update(trusted=True)),
        "metadata of the machine",
    ),
    (rules.is_valid, spoiled(lambda nb: nb.cells[1].update(id="title")), "title"),
    (rules.is_valid, spoiled(lambda nb: nb.cells[0].pop("source")), "not a valid notebook"),
    (
        rules.is_valid,
        spoiled(lambda nb: nb.cells[3].metadata.nbgrader.update(grade_id="03-free"), solution_notebook),
        "grade id '03-free'",
    ),
    (rules.widget_cells_are_ignored, one(source=f"show(2)\n{WIDGET}"), "tag the cell nbval-ignore-output"),
    (
        rules.widget_cells_are_ignored,
        one(source=WIDGET, tags=(rules.IGNORED,)),
        "call show(...) in a plain cell",
    ),
    (rules.widget_cells_are_ignored, one(source="ipywidgets.Output()"), "makes a widget"),
    *(
        (rules.widget_cells_are_ignored, one(source=f"{source}\nshow(2)"), "makes a widget")
        for source in (
            "@interact\ndef show(blocks=2):\n    print(blocks)",
            "@widgets.interact(blocks=5)\ndef show(blocks):\n    print(blocks)",
            "view = interactive(show, blocks=5)",
            "interactive_output(show, {'blocks': slider})",
        )
    ),
    *(
        (rules.widget_cells_are_ignored, one(source=source, tags=(rules.IGNORED,)), "call show(...) in a plain cell")
        for source in (
            "@interact\ndef show(blocks=2):\n    print(blocks)",
            "@interact(blocks=5)\ndef show(blocks):\n    print(blocks)",
            "@interact.options(manual=True)\ndef show(blocks=2):\n    print(blocks)",
            "interact(blocks=5)(show)",
            "view = interactive(pool.show, blocks=5)\nview",
            "interactive_output(show, {'blocks': slider})",
            "out = Output()\nslider.observe(show, 'value')\nout",
            "out = Output()\nwith out:\n    show(2)\nout",
            "interact(show, blocks=5)\nshow(2)",
            "def show(blocks):\n    return show(blocks - 1)\ninteract(show, blocks=5)",
        )
    ),
    *(
        (rules.widget_cells_are_ignored, one(source=source, tags=(rules.IGNORED,)), "give it a name")
        for source in (
            "interact(lambda blocks: print(blocks), blocks=5)",
            "interact(partial(show, 1), blocks=5)",
            "interactive(lambda blocks: show(blocks), blocks=5)",
        )
    ),
    *(
        (rules.ignored_cells_hide_nothing_else, one(source=source, tags=(rules.IGNORED,)), f"hides `{hidden}`")
        for source, hidden in (
            (f"print(2 + 2)\n{WIDGET}", "print(2 + 2)"),
            (f"{WIDGET}\n4", "4"),
            (f"{WIDGET}\nfree(2)", "free(2)"),
            ("out = Output()\ndisplay(out, 5)", "display(out, 5)"),
            ("out = Output()\nwith out:\n    print(2 + 2)", "print(2 + 2)"),
            ("print(time.time())\nprint(2 + 2)", "print(2 + 2)"),
            ("%%time\nfree(2)", "free(2)"),
        )
    ),
    (
        rules.ignored_cells_hide_nothing_else,
        one(printed("4\n"), source=f"free(2)\n{WIDGET}", tags=(rules.IGNORED,)),
        "prints where nbval does not look",
    ),
    (
        rules.widget_cells_are_ignored,
        one(shown(text_plain="interactive(children=(IntSlider(value=2),))"), source="explore(pool)"),
        "makes a widget",
    ),
    (
        rules.figures_are_described,
        one(shown(**PNG, text_plain="<Figure size 640x480 with 1 Axes>")),
        "image without words",
    ),
    (rules.figures_are_described, one(shown(**PNG)), "image without words"),
    (
        rules.figures_are_described,
        one(shown(text_html="<svg width='3'><rect/></svg>")),
        "no alt or aria-label",
    ),
    *(
        (rules.figures_are_asserted, one(shown(**PNG), source=source), "without an assert")
        for source in (
            "draw(pool)",
            "assert True\ndraw(pool)",
            "assert 1 + 1 == 2\ndraw(pool)",
            "def never_called():\n    assert pool\ndraw(pool)",
        )
    ),
    (rules.figures_are_asserted, one(shown(image_svg_xml="<svg/>"), source="draw(pool)"), "without an assert"),
    *(
        (rules.links_lead_somewhere, says(source), f"links to {target}")
        for source, target in (
            ("[next](04_nothing.ipynb)", "04_nothing.ipynb"),
            ("[`free`](../refimpl/nothing.py#L3)", "../refimpl/nothing.py#L3"),
            ("![a pool](pool.png)", "pool.png"),
            ("![a pool](attachment:pool.png)", "attachment:pool.png"),
            ("[a pool][picture]\n\n[picture]: pool.png", "pool.png"),
            ('<a href="nothing.html">a pool</a>', "nothing.html"),
            ("[yours](my_work/03.ipynb)", "my_work/03.ipynb"),
            ("[mine](file:///tmp)", "file:///tmp"),
            ("[mine](/)", "/"),
        )
    ),
    (rules.markdown_images_have_alt, says("![](pool.png)"), "without alt text"),
    (rules.markdown_images_have_alt, says('<img src="pool.png" alt="">'), "without alt text"),
    (rules.headings_do_not_skip, says("### Too deep"), "from heading level 1 to 3; use 2"),
    (rules.headings_do_not_skip, says("# Another title"), "second title"),
    (rules.headings_do_not_skip, says("<h3>Too deep</h3>"), "from heading level 1 to 3"),
    (rules.headings_do_not_skip, notebook(markdown("## No title", "words")), "from heading level 0 to 2"),
    (rules.headings_do_not_skip, notebook(markdown("Words only.", "words")), "no heading"),
    (rules.details_are_set_apart, says(GOOD_FOLD.replace("</summary>\n", "</summary>")), "line 4"),
    (rules.details_are_set_apart, says(GOOD_FOLD.replace("Because.\n", "Because.")), "line 7"),
    (rules.details_are_set_apart, says(GOOD_FOLD.replace("Before.\n", "Before.")), "line 2"),
    (rules.details_are_set_apart, says(GOOD_FOLD.replace("</details>\n", "</details>")), "line 8"),
    (rules.details_are_set_apart, says(GOOD_FOLD.replace("<details>", "  <details>")), "line 3"),
    (rules.no_lone_colour, says('<span style="color: #333">dark</span>'), "sets a colour alone"),
    (
        rules.no_lone_colour,
        says('<div style="background-color: white; border: 0">white</div>'),
        "sets a colour alone",
    ),
    (rules.no_lone_colour, says('<font color="red">red</font>'), "sets a colour alone"),
    (rules.no_lone_colour, one(shown(text_html="<style>.a { color: black }</style>")), "sets a colour alone"),
    (rules.no_sleep_no_network, one(source="import time\ntime.sleep(2)"), "sleep"),
    (rules.no_sleep_no_network, one(source="from urllib.request import urlopen"), "urllib.request"),
    (rules.no_sleep_no_network, one(source="%pip install vllm"), "%pip install vllm"),
    (rules.no_sleep_no_network, one(source="!ls"), "!ls"),
    (rules.no_sleep_no_network, one(source="%%system\nls"), "%%system"),
    (rules.no_sleep_no_network, one(source="import os\nos.system('pip install vllm')"), "os.system"),
    (rules.no_sleep_no_network, one(source="from os import popen\npopen('ls')"), "popen"),
    (rules.no_sleep_no_network, one(source="import subprocess"), "subprocess"),
    (rules.no_sleep_no_network, one(source="get_ipython().run_line_magic('pip', 'list')"), "get_ipython"),
    (rules.no_sleep_no_network, one(source="IPython.get_ipython().system('ls')"), "get_ipython"),
    (rules.says_what_it_asks_of_the_reader, spoiled(lambda nb: nb.metadata.pop("course")), "has no minutes"),
    (
        rules.says_what_it_asks_of_the_reader,
        spoiled(lambda nb: nb.metadata.course.pop("objectives")),
        "no objectives",
    ),
    (
        rules.says_what_it_asks_of_the_reader,
        spoiled(meta(minutes={"Owners": 75})),
        "'Owners' takes 75 minutes",
    ),
    (rules.says_what_it_asks_of_the_reader, spoiled(meta(minutes=75)), "takes 75 minutes"),
    (rules.says_what_it_asks_of_the_reader, spoiled(meta(minutes=30)), "write '30 minutes'"),
    (rules.says_what_it_asks_of_the_reader, spoiled(meta(objectives=[])), "no objective"),
    (rules.lesson_cells_are_short, one(source="x = 1\n" * 16), "16 lines of code"),
    (rules.steps_are_triplets, spoiled(swap_answer_and_check, solution_notebook), "must follow its task"),
    (rules.steps_are_triplets, spoiled(lambda nb: nb.cells.pop(), solution_notebook), "0 folded hints"),
    (
        rules.steps_are_triplets,
        spoiled(lambda nb: nb.cells.append(nb.cells[-1]), solution_notebook),
        "6 folded hints",
    ),
    (
        rules.steps_are_triplets,
        spoiled(lambda nb: nb.cells[2].update(id="words"), solution_notebook),
        "'03-free-task'",
    ),
    (rules.answers_mark_their_region, spoiled(without_region, solution_notebook), "BEGIN SOLUTION"),
    (
        rules.answers_mark_their_region,
        spoiled(lambda nb: cell_of(nb, "03-free-solution").metadata.pop("nbgrader"), solution_notebook),
        "learners would receive it",
    ),
    (
        rules.checks_are_one_locked_line,
        spoiled(lambda nb: nb.cells[4].update(source="answer = free\ncheck('03-free', answer)"), solution_notebook),
        "is not one line",
    ),
    (
        rules.checks_are_one_locked_line,
        spoiled(lambda nb: nb.cells[4].update(source='check("03-free")'), solution_notebook),
        "is not one line",
    ),
    (
        rules.checks_are_one_locked_line,
        spoiled(lambda nb: nb.cells[4].update(source='check("03-allocate", free)'), solution_notebook),
        "graded as '03-free'",
    ),
    (
        rules.checks_are_one_locked_line,
        spoiled(lambda nb: nb.cells[4].metadata.nbgrader.update(locked=False), solution_notebook),
        "not a locked check",
    ),
    (
        rules.says_the_step_convention,
        notebook(markdown("# Append", "title"), *step("06-append-slots")),
        "already includes the newest token",
    ),
    (rules.nothing_is_stored, one(printed("1")), "carries an output"),
]
BAD += [
    (
        rules.lesson_has_its_parts,
        spoiled(lambda nb, gone=gone: cell_of(nb, gone).update(source="Nothing.")),
        f"no part '{part}'",
    )
    for gone, part in (
        ("in-vllm", "In vLLM"),
        ("not-building", "What you are not building here"),
        ("pitfalls", "Pitfalls from the field"),
        ("owners", "Predict"),
    )
]


def rule_name(value: object) -> str | None:
    return getattr(value, "__name__", None) or (value if isinstance(value, str) else "notebook")


@pytest.mark.parametrize(("rule", "nb", "sentence"), BAD, ids=rule_name)
def test_the_bad_notebook_breaks_the_rule(rule: rules.Rule, nb: NotebookNode, sentence: str) -> None:
    found = rule(nb, LESSON)
    assert len(found) == 1, found
    assert sentence in found[0]
    assert LESSON.name in found[0]


def test_every_rule_has_a_notebook_that_breaks_it() -> None:
    everywhere = {rule for of_folder in rules.RULES.values() for rule in of_folder}
    assert everywhere == {rule for rule, _, _ in BAD}


@pytest.mark.parametrize("folder", ["notebooks", "solutions"])
def test_a_good_notebook_obeys_every_rule(folder: str) -> None:
    nb = lesson_notebook() if folder == "notebooks" else solution_notebook()
    assert [sentence for rule in rules.RULES[folder] for sentence in rule(nb, LESSON)] == []


@pytest.mark.parametrize(
    ("rule", "nb"),
    [
        (rules.no_trailing_semicolon, one(source="text = 'a;'  # a;\nx = 1; y = 2")),
        (rules.no_addresses, one(printed("slot 0x1f of 0xff"))),
        (rules.no_value_of_this_process, one(source="print(hash('a') == hash('a'))\nassert id(a) != id(b)")),
        (rules.no_value_of_this_process, one(source="key = hash('a')\nkey = 3\nprint(key, block.id, now)")),
        (rules.no_value_of_this_process, one(source="hash('a')", tags=(rules.IGNORED,))),
        (rules.cells_are_python, one(source="%matplotlib inline\n!ls\nprint(1)")),
        (rules.nothing_hides_from_nbval, one(source=WIDGET, tags=(rules.IGNORED,))),
        (rules.nothing_hides_from_nbval, one(source="%timeit free()", tags=(rules.IGNORED,))),
        (rules.nothing_hides_from_nbval, one(source="print(time.time())", tags=(rules.IGNORED,))),
        (rules.nothing_hides_from_nbval, one(source="@interact\ndef show(n=5):\n    print(n)", tags=(rules.IGNORED,))),
        (rules.tags_are_known, one(source=WIDGET, tags=(rules.IGNORED,))),
        (rules.ignored_cells_hide_nothing_else, one(source=WIDGET, tags=(rules.IGNORED,))),
        (rules.ignored_cells_hide_nothing_else, one(source="print(2 + 2)\nfree(2)")),
        *(
            (rules.ignored_cells_hide_nothing_else, one(source=source, tags=(rules.IGNORED,)))
            for source in (
                "@interact\ndef show(n=5):\n    print(n)",
                "out = Output()\nslider.observe(show)",
                "view = interactive(show, n=5)\nview",
            )
        ),
        (
            rules.ignored_cells_hide_nothing_else,
            one(source="out = Output()\nslider.observe(show)\ndisplay(out, VBox([slider]))", tags=(rules.IGNORED,)),
        ),
        (
            rules.ignored_cells_hide_nothing_else,
            one(printed("3.1"), source="start = time.time()\nprint(time.time() - start)", tags=(rules.IGNORED,)),
        ),
        (
            rules.ignored_cells_hide_nothing_else,
            one(printed("Wall time: 3 ms"), source="%%time\nx = 1", tags=(rules.IGNORED,)),
        ),
        (
            rules.widget_cells_are_ignored,
            notebook(code("show(2)", "plain"), code(WIDGET, "widget", tags=(rules.IGNORED,))),
        ),
        (
            rules.widget_cells_are_ignored,
            notebook(
                code("@interact\ndef show(n=5):\n    print(n)", "widget", tags=(rules.IGNORED,)),
                code("show(2)", "plain"),
            ),
        ),
        (rules.widget_cells_are_ignored, one(source="from ipywidgets import interact, Output")),
        (
            rules.widget_cells_are_ignored,
            one(source="out = Output()\nwith out:\n    clear_output()", tags=(rules.IGNORED,)),
        ),
        (rules.figures_are_asserted, one(shown(**PNG), source="assert pool.free == 3, 'of 4'\ndraw(pool)")),
        (rules.figures_are_asserted, one(shown(text_html="<svg/>"), source="draw(pool)")),
        (rules.links_lead_somewhere, says("[paper](https://arxiv.org/abs/2309.06180), [above](#a-title), `[a](b.c)`")),
        (rules.no_sleep_no_network, one(source="import os, platform\nprint(os.path.join('a'), platform.system())")),
        (rules.no_timings, one(printed("A check stops after 10 s; a block is copied in 3 ms."))),
        (rules.no_timings, one(source="%time x", tags=(rules.IGNORED,))),
        (rules.figures_are_described, one(shown(**PNG, text_plain="Pool of 4 blocks: 1 used"))),
        (rules.figures_are_described, one(shown(**PNG), printed("4 blocks, 1 used"))),
        (rules.figures_are_described, one(shown(text_html='<svg role="img" aria-label="4 blocks"></svg>'))),
        (rules.markdown_images_have_alt, says("![four blocks](a.png) and `![](b.png)`")),
        (
            rules.headings_do_not_skip,
            says("## Two\n\n```\n#### a comment in code\n```\n\n### Three\n\n## Two"),
        ),
        (rules.details_are_set_apart, says(GOOD_FOLD)),
        (rules.no_lone_colour, says('<p style="color: #222; background: #fff">both</p>')),
        (rules.no_lone_colour, says('<p style="color: var(--jp-ui-font-color1, #222)">theme</p>')),
        (rules.says_what_it_asks_of_the_reader, spoiled(meta(minutes=10))),
        (rules.lesson_cells_are_short, one(source="x = 1\n" * 15 + "# why\n\n")),
        (
            rules.says_the_step_convention,
            notebook(markdown("The length already\nincludes the newest token.", "06-append-slots-task")),
        ),
    ],
    ids=rule_name,
)
def test_what_only_looks_like_a_violation_is_free(rule: rules.Rule, nb: NotebookNode) -> None:
    assert rule(nb, LESSON) == []


def test_links_are_followed_from_where_the_notebook_lies(tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "a table.ipynb").touch()
    nb = says("[next](../a%20table.ipynb#Owners) and ![a pool](attachment:pool.png)")
    cell_of(nb, "words").attachments = {"pool.png": {"image/png": "aGVsbG8="}}
    assert rules.links_lead_somewhere(nb, tmp_path / "notebooks" / LESSON.name) == []
    assert len(rules.links_lead_somewhere(nb, tmp_path / LESSON.name)) == 1
    (tmp_path / "my_work").mkdir()
    assert rules.links_lead_somewhere(says("[yours](my_work)"), tmp_path / LESSON.name), "others have no such folder"


def test_steps_and_points_must_be_those_of_the_checks() -> None:
    nb = solution_notebook()
    good = {"03-free": SimpleNamespace(points=2), "04-free": SimpleNamespace(points=1)}
    assert rules.checks_match(nb, LESSON, good) == []
    assert "worth 2.0 here, 3 in" in rules.checks_match(nb, LESSON, {"03-free": SimpleNamespace(points=3)})[0]
    more = {**good, "03-share": SimpleNamespace(points=1)}
    assert "checks 03-free; refimpl.checks has 03-free, 03-share" in rules.checks_match(nb, LESSON, more)[0]


LEAKED = "remaining_owners = owners - 1"


@pytest.mark.parametrize(
    "cell",
    [
        markdown(f"In words: `{LEAKED}`.", "words"),
        code(f'def free(owners):\n    """Give back.\n\n    {LEAKED}\n    """', "docstring"),
        code(f"# {LEAKED}\nfree(2)", "comment"),
        code("help(free)", "output", printed(f"    {LEAKED}\n")),
        code("free", "value", shown(text_html=f"<pre>{LEAKED}</pre>")),
    ],
    ids=lambda cell: cell.id,
)
def test_a_planted_leak_is_caught(cell: NotebookNode) -> None:
    """L1 and L3: in text, docstring, comment, printed output and displayed output."""
    hidden = rules.secrets([solution_notebook()])
    assert hidden == {LEAKED: "03-free-solution", "return remaining_owners": "03-free-solution"}
    found = rules.leaks(notebook(cell), LESSON, hidden)
    assert len(found) == 1, found
    assert cell.id in found[0]
    assert rules.leaks(lesson_notebook(), LESSON, hidden) == []


def test_comments_of_a_solution_are_secret_too() -> None:
    answer = code("### BEGIN SOLUTION\n# take one owner away first\npass\n### END SOLUTION", "answer")
    assert list(rules.secrets([notebook(graded(answer, "03-free-solution"))])) == ["# take one owner away first"]


def test_rules_see_the_file_as_it_is(tmp_path: Path) -> None:
    """nbformat's reader would give the second of two equal cell ids a new one and so hide the fault."""
    path = tmp_path / "03_owners.ipynb"
    nb = lesson_notebook()
    notebooks.write(nb, path)
    assert rules.load(path) == nb
    path.write_text(path.read_text().replace('"id": "owners"', '"id": "title"'))
    assert "id 'title'" in rules.is_valid(rules.load(path), path)[0]


def test_a_rule_speaks_in_one_line_that_ends_as_a_sentence() -> None:
    said = [sentence for rule, nb, _ in BAD for sentence in rule(nb, LESSON)]
    assert [sentence for sentence in said if "\n" in sentence or not sentence.endswith(".")] == []
