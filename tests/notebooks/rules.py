"""The rules that every notebook of the course obeys, each one a function from a notebook to its violations.

A rule `rule(nb, path)` returns one sentence for each violation, which names the cell and what to do; no
sentence means that the rule holds. Rules read and never run a notebook. `RULES` says which kind of notebook
each is for.
"""

import ast
import html
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import ipywidgets
import nbformat
from nbformat import NotebookNode
from nbformat.validator import iter_validate

from refimpl import notebooks

Rule = Callable[[NotebookNode, Path], list[str]]

IGNORED = "nbval-ignore-output"
STEP_CONVENTION = "already includes the newest token"
LONGEST_CELL = 15  # lines of code in a lesson
LONGEST_SECTION = 60  # minutes
SHORTEST_SECRET = 20  # characters of a solution line that must occur nowhere else
EXECUTE = "python -m refimpl execute"


def load(path: Path) -> NotebookNode:
    """Return the notebook at `path` as it stands in the file; nbformat's reader would mend some faults."""
    return nbformat.v4.rwbase.rejoin_lines(nbformat.from_dict(json.loads(path.read_text(encoding="utf-8"))))


def at(path: Path, index: int, cell: NotebookNode) -> str:
    """Return how a violation names a cell: file, place among all cells, id."""
    return f"{path.name}: cell {index} ({cell.get('id', 'without id')})"


def cells(nb: NotebookNode, cell_type: str) -> Iterator[tuple[int, NotebookNode]]:
    """Yield the cells of one type with their place among all cells."""
    return ((index, cell) for index, cell in enumerate(nb.cells) if cell.cell_type == cell_type)


def is_ignored(cell: NotebookNode) -> bool:
    """Return whether nbval runs the cell without comparing what it shows."""
    return IGNORED in cell.metadata.get("tags", [])


def parsed(cell: NotebookNode) -> ast.Module:
    """Return the syntax tree of a code cell, its magics and shell lines left out; empty when it has none."""
    try:
        return ast.parse(python_of(cell))
    except SyntaxError:
        return ast.parse("")


def python_of(cell: NotebookNode) -> str:
    """Return the lines of a code cell that are Python."""
    return "\n".join(line for line in cell.source.splitlines() if not line.lstrip().startswith(("%", "!")))


def named(node: ast.AST) -> str:
    """Return a name or the last part of a dotted one, otherwise an empty string."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def called(node: ast.AST) -> str:
    """Return the last part of the name of what a call calls, otherwise an empty string."""
    return named(node.func) if isinstance(node, ast.Call) else ""


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and what runs with it: all below it but the bodies of functions, which wait for a call."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from outside_functions(child)


def stored_text(output: NotebookNode) -> str:
    """Return all the text that one output holds, whatever its type; images are left out."""
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "\n".join([str(output.evalue), *output.traceback])
    return "\n".join(str(text) for kind, text in output.data.items() if kind.startswith("text/") or "svg" in kind)


# What is stored is what a clean run shows.


def cells_ran_in_order(nb: NotebookNode, path: Path) -> list[str]:
    """Execution counts are 1..n: nbval passes a cell that never ran whatever it shows (E03)."""
    found = []
    for wanted, (index, cell) in enumerate(cells(nb, "code"), start=1):
        count = cell.get("execution_count")
        if count is None:
            found.append(f"{at(path, index, cell)} was never executed; run {EXECUTE} {path}.")
        elif count != wanted:
            found.append(f"{at(path, index, cell)} has execution count {count}, not {wanted}; run {EXECUTE} {path}.")
    return found


def cells_are_python(nb: NotebookNode, path: Path) -> list[str]:
    """Every code cell is Python that can be parsed, so that no other rule passes over it."""
    found = []
    for index, cell in cells(nb, "code"):
        try:
            ast.parse(python_of(cell))
        except SyntaxError as error:
            found.append(f"{at(path, index, cell)} line {error.lineno} is not Python ({error.msg}); rewrite it.")
    return found


def no_empty_cells(nb: NotebookNode, path: Path) -> list[str]:
    """Every cell says or does something."""
    return [
        f"{at(path, index, cell)} is empty; take it out."
        for index, cell in enumerate(nb.cells)
        if not cell.source.strip()
    ]


def tags_are_known(nb: NotebookNode, path: Path) -> list[str]:
    """No cell is skipped, may fail, or is hidden from readers by a tag; there is one tag, for what nbval ignores."""
    return [
        f"{at(path, index, cell)} is tagged {tag!r}; take the tag away, {IGNORED} is the only one here."
        for index, cell in enumerate(nb.cells)
        for tag in cell.metadata.get("tags", [])
        if tag != IGNORED
    ]


def nothing_hides_from_nbval(nb: NotebookNode, path: Path) -> list[str]:
    """No comment and no magic keeps outputs from nbval: a tag does, and only where they cannot be compared.

    That is where a cell makes a widget (E08) or shows a time or another value of this process (E16).
    """
    found = []
    for index, cell in cells(nb, "code"):
        marks = re.findall(
            r"#\s*(NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)|^\s*(%%capture)\b", cell.source, re.MULTILINE
        )
        if marks:
            found.append(f"{at(path, index, cell)} is kept from nbval by {''.join(marks[0])}; take it away.")
    return found + [
        f"{at(path, index, cell)} is tagged {IGNORED} without a widget or a time; take the tag away."
        for index, cell in cells(nb, "code")
        if is_ignored(cell) and not _may_be_ignored(nb, cell)
    ]


def _may_be_ignored(nb: NotebookNode, cell: NotebookNode) -> bool:
    """Return whether a rule would object to what the cell shows if its tag were taken away."""
    bare = nbformat.from_dict({**nb, "cells": [{**other, "metadata": {}} for other in nb.cells]})
    of_cell = f"({cell.id})"
    objections = (no_timings, no_value_of_this_process, widget_cells_are_ignored)
    return any(of_cell in sentence for rule in objections for sentence in rule(bare, Path()))


def ignored_cells_hide_nothing_else(nb: NotebookNode, path: Path) -> list[str]:
    """A cell whose output nbval ignores shows a widget or a value of this process and nothing that is comparable.

    Caught: `print(...)`, `display(...)` and a last expression that are neither, and stored text that no time explains.
    """
    found = []
    explained = set()
    for index, cell, node, volatile in shown_values(nb, outside_functions):
        if volatile:
            explained.add(index)
        elif is_ignored(cell) and not _shows_widget(node, _widget_names(nb)):
            explained.add(index)
            found.append(f"{at(path, index, cell)} hides `{ast.unparse(node)}`; show it in a cell without {IGNORED}.")
    return found + [
        f"{at(path, index, cell)} prints where nbval does not look; print it in a cell without {IGNORED}."
        for index, cell in cells(nb, "code")
        if is_ignored(cell) and index not in explained and not TIMING_MAGIC.search(cell.source)
        if any(output.output_type == "stream" for output in cell.outputs)
    ]


def _shows_widget(node: ast.AST, widgets: set[str]) -> bool:
    """Return whether what `node` shows is only widgets, by the names of their makers and of `widgets`."""
    if called(node) == "display":
        return all(_shows_widget(argument, widgets) for argument in node.args)
    is_maker = isinstance(node, ast.Call) and (_is_widget_maker(node.func) or called(node) in WIDGET_TYPES | HANDED_TO)
    return is_maker or (isinstance(node, ast.Name) and node.id in widgets)


def _widget_names(nb: NotebookNode) -> set[str]:
    """Return the names that the notebook gives to widgets."""
    assignments = (
        node for _, cell in cells(nb, "code") for node in ast.walk(parsed(cell)) if isinstance(node, ast.Assign)
    )
    return {named(target) for node in assignments if _shows_widget(node.value, set()) for target in node.targets}


def nothing_on_stderr(nb: NotebookNode, path: Path) -> list[str]:
    """No stored output comes from stderr, whose text changes with paths and process numbers (E12)."""
    return [
        f"{at(path, index, cell)} shows text on stderr; mend its cause or catch and print it."
        for index, cell in cells(nb, "code")
        if any(output.output_type == "stream" and output.name == "stderr" for output in cell.outputs)
    ]


def no_stored_error(nb: NotebookNode, path: Path) -> list[str]:
    """No cell ends in an error; an expected one is caught and printed."""
    return [
        f"{at(path, index, cell)} stores the error {output.ename}; catch it in the cell and print it."
        for index, cell in cells(nb, "code")
        for output in cell.outputs
        if output.output_type == "error"
    ]


def no_trailing_semicolon(nb: NotebookNode, path: Path) -> list[str]:
    """No line of code ends in `;`: Jupyter hides the value then, nbval does not and fails (E02)."""
    return [
        f"{at(path, index, cell)} has a line that ends in ';'; give the value to `_` instead."
        for index, cell in cells(nb, "code")
        if _ends_in_semicolon(cell.source)
    ]


def _ends_in_semicolon(source: str) -> bool:
    beside = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}
    try:
        tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in beside]
    except (tokenize.TokenError, SyntaxError):
        return any(line.rstrip().endswith(";") for line in source.splitlines())
    ends = {tokenize.NEWLINE, tokenize.ENDMARKER}
    return any(token.string == ";" and after.type in ends for token, after in zip(tokens, tokens[1:], strict=False))


def no_addresses(nb: NotebookNode, path: Path) -> list[str]:
    """No output shows where an object lies in memory, which differs on every run (E09)."""
    return [
        f"{at(path, index, cell)} shows the address {address.group()}; print what matters of the object."
        for index, cell in cells(nb, "code")
        for output in cell.outputs
        if (address := re.search(r"\b0x[0-9a-f]{6,}", stored_text(output), re.IGNORECASE))
    ]


# Calls that give another value in every process, or for every learner; of names that a variable may well have, the full
# form only.
OF_THIS_PROCESS = re.compile(
    r"id|hash|time\.time|parts\.collect|(.*\.)?(datetime\.now|date\.today|Path\.cwd|"
    r"__hash__|getpid|getcwd|uuid1|uuid4|mkdtemp|mkstemp|utcnow|time_ns|"
    r"(perf_counter|monotonic|process_time)(_ns)?)"
)


def no_value_of_this_process(nb: NotebookNode, path: Path) -> list[str]:
    """No compared cell prints or ends in a raw hash, an id, a clock or a path of this process (E16, E20).

    Caught: a call that matches OF_THIS_PROCESS, or a name assigned from one anywhere earlier in the notebook,
    inside `print(...)` or `display(...)` or as the last expression of a cell. A comparison makes it a plain
    True or False and is free: `print(hash(a) == hash(b))`. Not followed: values that pass through functions
    and containers.
    """
    return [
        f"{at(path, index, cell)} shows {', '.join(names)}, which differs in every process; "
        "compare it and print the outcome."
        for index, cell, _, names in shown_values(nb, ast.walk)
        if names and not is_ignored(cell)
    ]


def shown_values(
    nb: NotebookNode, walk: Callable[[ast.AST], Iterator[ast.AST]]
) -> Iterator[tuple[int, NotebookNode, ast.AST, list[str]]]:
    """Yield each print, display and last expression of a cell: place, cell, node, its calls of this process.

    `walk` says which nodes below a statement count.
    """
    tainted: dict[str, str] = {}
    for index, cell in cells(nb, "code"):
        tree = parsed(cell)
        for statement in tree.body:
            shown = [node for node in walk(statement) if called(node) in {"print", "display"}]
            if statement is tree.body[-1] and isinstance(statement, ast.Expr) and statement.value not in shown:
                shown.append(statement.value)
            for node in shown:
                yield index, cell, node, sorted(set(_volatile(node, tainted)))
            _taint(statement, tainted)


def _volatile(node: ast.AST, tainted: Mapping[str, str]) -> Iterator[str]:
    """Yield the calls below `node`, comparisons left out, whose value differs in every process."""
    if isinstance(node, ast.Compare):
        return
    if isinstance(node, ast.Call) and OF_THIS_PROCESS.fullmatch(ast.unparse(node.func)):
        yield f"{ast.unparse(node.func)}()"
    elif isinstance(node, ast.Name) and node.id in tainted:
        yield tainted[node.id]
    for child in ast.iter_child_nodes(node):
        yield from _volatile(child, tainted)


def _taint(statement: ast.stmt, tainted: dict[str, str]) -> None:
    """Remember the names that `statement` gives a value of this process; forget those it gives another."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            source = next(_volatile(node.value, tainted), None)
            for name in names:
                tainted.pop(name, None)
                if source:
                    tainted[name] = source


TIMING_MAGIC = re.compile(r"^\s*%%?(time|timeit|prun)\b", re.MULTILINE)
TIMING = re.compile(r"Wall time:|CPU times:|per loop|\d+%\|.*\|\s*\d+/|\bit/s\]|\bs/it\]|\[\d\d:\d\d<")


def no_timings(nb: NotebookNode, path: Path) -> list[str]:
    """No compared cell shows a time: neither a timing magic nor a text progress bar (E07, E16)."""
    found = []
    for index, cell in cells(nb, "code"):
        magic = TIMING_MAGIC.search(cell.source)
        text = next((hit for output in cell.outputs if (hit := TIMING.search(stored_text(output)))), None)
        if (magic or text) and not is_ignored(cell):
            what = (magic or text).group().strip()
            found.append(f"{at(path, index, cell)} shows a time ('{what}'); tag the cell {IGNORED} or drop it.")
    return found


def is_canonical(nb: NotebookNode, path: Path) -> list[str]:
    """The file is what the executor writes: kernel `python3` (E11), no timings, no Python patch version."""
    name = nb.metadata.get("kernelspec", {}).get("name")
    if name != "python3":
        return [f"{path.name}: the kernel is {name!r}, which only its author's machine has; run {EXECUTE} {path}."]
    if nb != notebooks.canonical(nb):
        return [f"{path.name} carries metadata of the machine that saved it; run {EXECUTE} {path}."]
    return []


def is_valid(nb: NotebookNode, path: Path) -> list[str]:
    """The notebook satisfies nbformat's schema, and no two cells share an id or a grade id."""
    error = next(iter_validate(nb, version=4, version_minor=5), None)
    if error:
        return [f"{path.name} is not a valid notebook ({error.message.splitlines()[0]}); save it in JupyterLab."]
    grade_ids = (cell.metadata.nbgrader.grade_id for cell in nb.cells if "nbgrader" in cell.metadata)
    return [
        f"{path.name}: {count} cells have the {kind} {name!r}; give each its own."
        for kind, names in (("id", [cell.get("id") for cell in nb.cells]), ("grade id", grade_ids))
        for name, count in Counter(names).items()
        if count > 1
    ]


# What is shown can be compared and read by everyone.

WIDGETS = {"interact", "interactive", "interactive_output", "Output", "interact_manual"}
WIDGET_TEXT = re.compile(r"\b(interactive\(children|Output\()")
WIDGET_TYPES = {name for name, value in vars(ipywidgets).items() if isinstance(value, type)}
HANDED_TO = {"observe", "on_click"}  # methods of widgets that call a function later


def widget_cells_are_ignored(nb: NotebookNode, path: Path) -> list[str]:
    """A cell with `interact` or `Output` is tagged; its function has a name and is called in a plain cell too (E08)."""
    plain = {
        called(node)
        for _, cell in cells(nb, "code")
        if not is_ignored(cell)
        for node in outside_functions(parsed(cell))
    }
    found = []
    for index, cell in cells(nb, "code"):
        tree = parsed(cell)
        if not _is_widget_maker(tree) and not any(WIDGET_TEXT.search(stored_text(output)) for output in cell.outputs):
            continue
        if not is_ignored(cell):
            found.append(f"{at(path, index, cell)} makes a widget; tag the cell {IGNORED}.")
        for function in _behind_widgets(tree):
            name = named(function)
            if not name:
                what = f"`{ast.unparse(function)}` behind a widget; give it a name and call that"
                found.append(f"{at(path, index, cell)} hides {what} in a plain cell as well.")
            elif name not in plain:
                found.append(
                    f"{at(path, index, cell)} hides {name} behind a widget; call {name}(...) in a plain cell as well."
                )
    return found


def _is_widget_maker(node: ast.AST) -> bool:
    """Return whether `node` uses one of WIDGETS: `interact`, `interact(n=5)`, `widgets.interact.options(...)`."""
    return any(named(part) in WIDGETS for part in ast.walk(node))


def _behind_widgets(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the functions that widgets call: decorated, handed over, or called inside `with output:`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(map(_is_widget_maker, node.decorator_list)):
            yield ast.Name(node.name)
        elif isinstance(node, ast.Call) and (_is_widget_maker(node.func) or called(node) in HANDED_TO):
            yield from node.args[:1]
    for node in outside_functions(tree):
        if isinstance(node, ast.With) and isinstance(node.items[0].context_expr, ast.Name):
            calls = (line.value for line in node.body if isinstance(line, ast.Expr) and called(line.value))
            yield from (call.func for call in calls if called(call) not in {"print", "display", "clear_output"})


def figures_are_described(nb: NotebookNode, path: Path) -> list[str]:
    """What an image shows stands beside it as text, which nbval compares; images are not compared.

    The text is the image output's own text (as `refimpl.viz` gives it) or one that the cell prints; pictures
    in HTML carry an `alt` or an `aria-label`.
    """
    found = []
    for index, cell in cells(nb, "code"):
        printed = any(output.output_type == "stream" and output.text.strip() for output in cell.outputs)
        for output in cell.outputs:
            data = output.get("data", {})
            own_text = str(data.get("text/plain", "<"))
            has_image = any(kind.startswith("image/") for kind in data)
            if has_image and own_text.startswith("<") and not printed:
                found.append(f"{at(path, index, cell)} shows an image without words; print its describe() beside it.")
            if not _html_images_are_described(str(data.get("text/html", ""))):
                found.append(f"{at(path, index, cell)} shows HTML with a picture that has no alt or aria-label.")
    return found


def figures_are_asserted(nb: NotebookNode, path: Path) -> list[str]:
    """A cell that shows an image asserts as numbers what the image shows: nbval compares numbers only."""
    return [
        f"{at(path, index, cell)} shows an image without an assert; assert what it shows as numbers."
        for index, cell in cells(nb, "code")
        if any(kind.startswith("image/") for output in cell.outputs for kind in output.get("data", {}))
        if not any(isinstance(node, ast.Assert) and _can_fail(node) for node in outside_functions(parsed(cell)))
    ]


def _can_fail(statement: ast.Assert) -> bool:
    """Return whether an assertion is about something that has a name, and so is more than `assert True`."""
    return any(isinstance(node, ast.Name) for node in ast.walk(statement.test))


def markdown_images_have_alt(nb: NotebookNode, path: Path) -> list[str]:
    """Every image in the text has words for those who do not see it."""
    return [
        f"{at(path, index, cell)} has an image without alt text; say in it what the image shows."
        for index, cell in cells(nb, "markdown")
        if re.search(r"!\[\s*\]", prose(cell.source)) or not _html_images_are_described(prose(cell.source))
    ]


def _html_images_are_described(text: str) -> bool:
    tags = re.findall(r"<(?:img|svg)\b[^>]*>", text, re.IGNORECASE)
    return all(re.search(r"""\b(?:alt|aria-label)\s*=\s*["'][^"']*\w""", tag) for tag in tags)


LINK = re.compile(
    r"""\]\(\s*<?([^)\s>]+)|^ {0,3}\[[^\]^]+\]:\s*<?([^\s>]+)|\b(?:href|src)\s*=\s*["']([^"']+)""",
    re.MULTILINE | re.IGNORECASE,
)


def links_lead_somewhere(nb: NotebookNode, path: Path) -> list[str]:
    """A link to a file leads, from where the notebook lies, to one that every clone has."""
    return [
        f"{at(path, index, cell)} links to {target}, which a clone does not have; mend it, or write the path as code."
        for index, cell in cells(nb, "markdown")
        for target in map("".join, LINK.findall(prose(cell.source)))
        if not _is_there(target, cell, path)
    ]


def _is_there(target: str, cell: NotebookNode, path: Path) -> bool:
    """Return whether a link's target exists; what stands on the web and in this notebook is taken as existing."""
    parts = urlsplit(target)
    if parts.scheme == "attachment":
        return parts.path in cell.get("attachments", {})
    if parts.scheme or parts.netloc or not parts.path:
        return parts.scheme != "file"
    place = Path(unquote(parts.path))
    return not place.is_absolute() and "my_work" not in place.parts and (path.parent / place).exists()


def prose(source: str) -> str:
    """Return markdown without its code, fenced and inline, in which every mark is meant literally."""
    unfenced = re.sub(r"^(```|~~~).*?^\1[^\n]*$", "", source, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "``", unfenced)


def headings_do_not_skip(nb: NotebookNode, path: Path) -> list[str]:
    """There is one title, it comes first, and no heading is more than one level below the one before it."""
    found = []
    before = 0
    for index, cell in cells(nb, "markdown"):
        for marks, html_level in re.findall(r"^ {0,3}(#{1,6})\s|<h([1-6])\b", prose(cell.source), re.MULTILINE):
            level = len(marks) or int(html_level)
            if level == 1 and before:
                found.append(f"{at(path, index, cell)} has a second title; a notebook has one heading of level 1.")
            elif level > before + 1:
                found.append(f"{at(path, index, cell)} goes from heading level {before} to {level}; use {before + 1}.")
            before = level
    return found if before else [f"{path.name} has no heading; begin with one of level 1."]


def details_are_set_apart(nb: NotebookNode, path: Path) -> list[str]:
    """Folded parts have blank lines around their content and no indentation, or they are not rendered."""
    found = []
    for index, cell in cells(nb, "markdown"):
        lines = cell.source.split("\n")
        for number, line in enumerate(lines):
            tag = re.match(r"\s*(<details\b|</details>|.*</summary>)", line)
            if tag is None:
                continue
            before, after = lines[number - 1 : number], lines[number + 1 : number + 2]
            wrong = line[:1].isspace()
            wrong |= (
                not line.lstrip().startswith("</details>") and "<summary>" not in line and bool("".join(before).strip())
            )
            wrong |= "<details" not in line and bool("".join(after).strip())
            wrong |= line.startswith("</details>") and bool("".join(before).strip())
            if wrong:
                found.append(
                    f"{at(path, index, cell)} line {number + 1}: put blank lines around <details> and "
                    "around its content, and no space before its tags."
                )
    return found


def no_lone_colour(nb: NotebookNode, path: Path) -> list[str]:
    """HTML that sets a colour sets its ground too, or uses JupyterLab's variables (dark theme)."""
    found = []
    for index, cell in enumerate(nb.cells):
        texts = [cell.source] if cell.cell_type == "markdown" else []
        texts += [str(output.get("data", {}).get("text/html", "")) for output in cell.get("outputs", [])]
        if any(_has_lone_colour(text) for text in texts):
            found.append(f"{at(path, index, cell)} sets a colour alone; set its background too, or use var(--jp-...).")
    return found


def _has_lone_colour(text: str) -> bool:
    if re.search(r"<font\b[^>]*\bcolor|\bbgcolor\s*=", text, re.IGNORECASE):
        return True
    blocks = [style for _, style in re.findall(r"""\bstyle\s*=\s*(["'])(.*?)\1""", text, re.DOTALL)]
    for sheet in re.findall(r"<style\b[^>]*>(.*?)</style>", text, re.DOTALL):
        blocks += re.findall(r"\{([^{}]*)\}", sheet)
    return any(len(_fixed_colours(block)) == 1 for block in blocks)


def _fixed_colours(block: str) -> set[str]:
    """Return which of colour and background a block of CSS declarations fixes whatever the theme."""
    fixed = set()
    for declaration in block.split(";"):
        name, _, value = (part.strip().lower() for part in declaration.partition(":"))
        free = not value or value.startswith("var(") or value in {"inherit", "transparent", "currentcolor", "none"}
        if name in {"color", "background", "background-color"} and not free:
            fixed.add(name.split("-")[0])
    return fixed


# What a learner is promised.


def says_what_it_asks_of_the_reader(nb: NotebookNode, path: Path) -> list[str]:
    """Metadata `course` has minutes, difficulty, objectives and prerequisites; the text shows the minutes."""
    course = nb.metadata.get("course", {})
    absent = [key for key in ("minutes", "difficulty", "objectives", "prerequisites") if key not in course]
    if absent:
        return [f"{path.name}: metadata `course` has no {', '.join(absent)}; add what is missing."]
    minutes = course.minutes if isinstance(course.minutes, dict) else {path.stem: course.minutes}
    found = [
        f"{path.name}: section {section!r} takes {count} minutes; {LONGEST_SECTION} is the limit."
        for section, count in minutes.items()
        if not 0 < count <= LONGEST_SECTION
    ]
    if not course.difficulty or not course.objectives:
        found.append(f"{path.name}: metadata `course` has an empty difficulty or no objective; fill it in.")
    top = " ".join(cell.source for cell in nb.cells[:3] if cell.cell_type == "markdown")
    if not found and not re.search(rf"\b{sum(minutes.values())} min", top):
        found.append(f"{path.name}: the top does not show the time; write '{sum(minutes.values())} minutes'.")
    return found


def lesson_has_its_parts(nb: NotebookNode, path: Path) -> list[str]:
    """A lesson from 01 on lets the reader predict, names vLLM's file, its own limits and real failures."""
    if path.stem.startswith("00"):
        return []
    text = "\n".join(prose(cell.source) for _, cell in cells(nb, "markdown")).lower()
    parts = ("In vLLM", "What you are not building here", "Pitfalls from the field", "Predict")
    return [f"{path.name} has no part {part!r}; write it." for part in parts if part.lower() not in text]


def lesson_cells_are_short(nb: NotebookNode, path: Path) -> list[str]:
    """A lesson's code cell is read at a glance; longer code belongs into refimpl."""
    found = []
    for index, cell in cells(nb, "code"):
        lines = [line for line in cell.source.splitlines() if line.strip() and not line.strip().startswith("#")]
        if len(lines) > LONGEST_CELL:
            found.append(f"{at(path, index, cell)} has {len(lines)} lines of code; {LONGEST_CELL} is the limit.")
    return found


OUTSIDE = {"aiohttp", "ftplib", "http", "httpx", "requests", "smtplib", "socket", "subprocess", "urllib", "urllib3"}
WAITS_OR_LEAVES = re.compile(r"(.*\.)?(sleep|get_ipython)|(os\.)?(system|popen|posix_spawnp?)|os\.(exec|spawn)[lv]\w*")


def no_sleep_no_network(nb: NotebookNode, path: Path) -> list[str]:
    """No cell waits, reaches for the network, installs, or starts a program: a lesson runs anywhere, at once."""
    found = []
    for index, cell in cells(nb, "code"):
        tree = parsed(cell)
        nodes = list(ast.walk(tree))
        imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        imported += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        wrong = [name for name in imported if name.split(".")[0] in OUTSIDE]
        functions = (ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))
        wrong += [name for name in functions if WAITS_OR_LEAVES.fullmatch(name)]
        wrong += re.findall(
            r"^\s*(![^\n]+|%%?(?:pip|conda|sx|system|bash|sh|script)\b[^\n]*)",
            cell.source,
            re.MULTILINE,
        )
        if wrong:
            found.append(f"{at(path, index, cell)} uses {', '.join(wrong)}; no cell waits or leaves the machine.")
    return found


# Exercise steps.


class Step(Protocol):
    """What a rule needs to know of a step: `refimpl.checks.steps()` maps ids to these."""

    @property
    def points(self) -> float:
        """What the step is worth."""


def check_cells(nb: NotebookNode) -> list[tuple[int, NotebookNode]]:
    """Return the graded cells of a notebook with their place, in order: one for each exercise step."""
    return [(index, cell) for index, cell in cells(nb, "code") if cell.metadata.get("nbgrader", {}).get("grade")]


def is_answer(cell: NotebookNode) -> bool:
    """Return whether the learner writes in this cell."""
    return cell.cell_type == "code" and bool(cell.metadata.get("nbgrader", {}).get("solution"))


def span(nb: NotebookNode, position: int) -> list[NotebookNode]:
    """Return the cells of the step whose check is the `position`-th: from its task to the next task."""
    starts = [_task_index(nb, index) for index, _ in check_cells(nb)] + [len(nb.cells)]
    return nb.cells[starts[position] : starts[position + 1]]


def _task_index(nb: NotebookNode, check_index: int) -> int:
    """Return the place of the task cell of a check: the text right before the first of its answers."""
    index = check_index - 1
    while index >= 0 and not is_answer(nb.cells[index]):
        index -= 1
    while index >= 0 and is_answer(nb.cells[index]):
        index -= 1
    return max(index, 0)


def steps_are_triplets(nb: NotebookNode, path: Path) -> list[str]:
    """A step is a task in words, its answer cells right below, its check right below them, three hints."""
    found = []
    for position, (index, check) in enumerate(check_cells(nb)):
        exercise_id = check.metadata.nbgrader.grade_id
        task = nb.cells[_task_index(nb, index)]
        if not is_answer(nb.cells[index - 1]) or task.cell_type != "markdown":
            found.append(f"{at(path, index, check)} must follow its task and its answer cell; move them together.")
            continue
        if not task.get("id", "").startswith(exercise_id):
            found.append(f"{path.name}: the task of {exercise_id} is called {task.id}; call it '{exercise_id}-task'.")
        hints = sum(cell.source.count("<details") for cell in span(nb, position) if cell.cell_type == "markdown")
        if hints != 3:
            found.append(f"{path.name}: {exercise_id} has {hints} folded hints (<details>); it needs exactly 3.")
    return found


def answers_mark_their_region(nb: NotebookNode, path: Path) -> list[str]:
    """Each answer cell of a solution marks one region; without it nbgrader blanks the signature as well."""
    found = []
    for index, cell in cells(nb, "code"):
        marks = re.findall(r"^\s*### (BEGIN|END) SOLUTION$", cell.source, re.MULTILINE)
        if is_answer(cell) and marks != ["BEGIN", "END"]:
            found.append(f"{at(path, index, cell)} needs one '### BEGIN SOLUTION' and one '### END SOLUTION' after it.")
        if not is_answer(cell) and "SOLUTION" in cell.source:
            found.append(f"{at(path, index, cell)} names a SOLUTION but is no answer cell; learners would receive it.")
    return found


def checks_are_one_locked_line(nb: NotebookNode, path: Path) -> list[str]:
    """A check is `check("ID", subject)` in a locked cell of grade id ID: the subject is passed in."""
    found = []
    for index, cell in check_cells(nb):
        about = cell.metadata.nbgrader
        tree = parsed(cell).body
        call = tree[0].value if len(tree) == 1 and isinstance(tree[0], ast.Expr) else None
        named = (
            call.args[0].value
            if called(call) == "check" and call.args and isinstance(call.args[0], ast.Constant)
            else None
        )
        if (
            "\n" in cell.source.strip()
            or named is None
            or len(call.args) != 2
            or not isinstance(call.args[1], ast.Name)
        ):
            found.append(f'{at(path, index, cell)} is not one line check("{about.grade_id}", subject); make it so.')
        elif named != about.grade_id:
            found.append(f"{at(path, index, cell)} checks {named!r} but is graded as {about.grade_id!r}.")
        if not about.locked or about.solution or about.schema_version != 3:
            found.append(f"{at(path, index, cell)} is not a locked check of nbgrader's schema 3; set its metadata.")
    return found


def checks_match(nb: NotebookNode, path: Path, steps: Mapping[str, Step]) -> list[str]:
    """The chapter has exactly the steps that `steps` lists for it, in their order, worth the same points."""
    wanted = [exercise_id for exercise_id in steps if exercise_id.startswith(f"{path.stem[:2]}-")]
    graded = {cell.metadata.nbgrader.grade_id: cell.metadata.nbgrader.points for _, cell in check_cells(nb)}
    if list(graded) != wanted:
        return [f"{path.name} checks {', '.join(graded) or 'nothing'}; refimpl.checks has {', '.join(wanted)}."]
    return [
        f"{path.name}: {exercise_id} is worth {points} here, {steps[exercise_id].points} in refimpl.checks."
        for exercise_id, points in graded.items()
        if points != steps[exercise_id].points
    ]


def says_the_step_convention(nb: NotebookNode, path: Path) -> list[str]:
    """A task about append_slots says whether the newest token is counted (D1)."""
    return [
        f"{at(path, index, cell)} does not say that a sequence's length {STEP_CONVENTION}; say it."
        for index, cell in cells(nb, "markdown")
        if re.match(r"06-.*task", str(cell.get("id", ""))) and STEP_CONVENTION not in " ".join(cell.source.split())
    ]


def secrets(solutions: Sequence[NotebookNode]) -> dict[str, str]:
    """Return the lines of all solution regions, comments and docstrings too, by the grade id they answer."""
    lines: dict[str, str] = {}
    for nb in solutions:
        for cell in filter(is_answer, nb.cells):
            for region in re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", cell.source, re.DOTALL):
                for line in map(str.strip, region.splitlines()):
                    if len(line) >= SHORTEST_SECRET:
                        lines[line] = cell.metadata.nbgrader.grade_id
    return lines


def leaks(nb: NotebookNode, path: Path, hidden: Mapping[str, str]) -> list[str]:
    """No line of a solution occurs in what learners get, be it in a comment or an output (L1, L3)."""
    found = []
    for index, cell in enumerate(nb.cells):
        text = "\n".join([cell.source, *(stored_text(output) for output in cell.get("outputs", []))])
        found += [
            f"{at(path, index, cell)} gives away a line of {answer}: {line!r}; take it out."
            for line, answer in hidden.items()
            if line in text or line in html.unescape(text)
        ]
    return found


def nothing_is_stored(nb: NotebookNode, path: Path) -> list[str]:
    """A released notebook carries neither outputs nor execution counts."""
    return [
        f"{at(path, index, cell)} carries an output or a count; run python -m refimpl release."
        for index, cell in cells(nb, "code")
        if cell.outputs or cell.execution_count is not None
    ]


OF_EVERY_NOTEBOOK: tuple[Rule, ...] = (
    is_canonical,
    is_valid,
    cells_are_python,
    no_empty_cells,
    tags_are_known,
    nothing_hides_from_nbval,
    no_trailing_semicolon,
    headings_do_not_skip,
    details_are_set_apart,
    markdown_images_have_alt,
    links_lead_somewhere,
    no_lone_colour,
    no_sleep_no_network,
    says_what_it_asks_of_the_reader,
)
OF_STORED_OUTPUTS: tuple[Rule, ...] = (
    cells_ran_in_order,
    nothing_on_stderr,
    no_stored_error,
    no_addresses,
    no_value_of_this_process,
    no_timings,
    widget_cells_are_ignored,
    ignored_cells_hide_nothing_else,
    figures_are_described,
    figures_are_asserted,
)
OF_STEPS: tuple[Rule, ...] = (steps_are_triplets, checks_are_one_locked_line, says_the_step_convention)

RULES: dict[str, tuple[Rule, ...]] = {
    "notebooks": (*OF_EVERY_NOTEBOOK, *OF_STORED_OUTPUTS, lesson_has_its_parts, lesson_cells_are_short),
    "solutions": (*OF_EVERY_NOTEBOOK, *OF_STORED_OUTPUTS, *OF_STEPS, answers_mark_their_region),
    "exercises": (*OF_EVERY_NOTEBOOK, *OF_STEPS, nothing_is_stored),
}
