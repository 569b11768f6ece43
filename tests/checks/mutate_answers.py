"""What wrong code would a check let pass? Every small change to every answer, and the changes that no check notices.

By itself, minutes a chapter: `python tests/checks/mutate_answers.py [NN ...]`. A change is one operator, number,
condition, name or statement of a solution's functions. A survivor is printed with its line: either it is right code
too, and `tests/README.md` says why, or the check has a hole.
"""

from __future__ import annotations

import ast
import copy
import itertools
import linecache
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refimpl import proof
from refimpl.checks import steps
from refimpl.checks.engine import examine
from refimpl.checks.step import Step

ROOT = Path(__file__).parents[2]
TIME_LIMIT = 2.0  # seconds; a change may well loop for ever

SWAPPED: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq, ast.GtE, ast.LtE),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot, ast.Eq),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv, ast.Add),
    ast.FloorDiv: (ast.Mod, ast.Div),
    ast.Mod: (ast.FloorDiv,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}


def changes(function: ast.FunctionDef) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Each changed copy of the function, with what was changed, a line each."""
    types = set(map(id, in_types(function)))
    nodes = [(index, node) for index, node in enumerate(ast.walk(function)) if id(node) not in types]
    names = sorted({node.id for _, node in nodes if isinstance(node, ast.Name) and node.id != "ValueError"})
    names += [arg.arg for arg in function.args.args if arg.arg not in names]
    for index, node in nodes:
        for what, change in of_node(node, names):
            changed = copy.deepcopy(function)
            change(list(ast.walk(changed))[index])
            before, after = ast.unparse(node), ast.unparse(list(ast.walk(changed))[index])
            yield f"line {getattr(node, 'lineno', 0)}, {what}: {before[:70]!r} -> {after[:70]!r}", changed


def in_types(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """What stands in the types of arguments, variables and results, where a change changes nothing."""
    for node in ast.walk(function):
        for name in ("annotation", "returns"):
            if (hint := getattr(node, name, None)) is not None:
                yield from ast.walk(hint)


def of_node(node: ast.AST, names: list[str]) -> Iterator[tuple[str, Any]]:
    """The changes of one node: what, and the function that does it to the same node of a copy."""
    if isinstance(node, ast.Compare):
        for other in SWAPPED.get(type(node.ops[0]), ()):
            yield "comparison", lambda n, other=other: setattr(n, "ops", [other(), *n.ops[1:]])
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp):
        for other in SWAPPED.get(type(node.op), ()):
            yield "operator", lambda n, other=other: setattr(n, "op", other())
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for step in (1, -1):
            yield "number", lambda n, step=step: setattr(n, "value", n.value + step)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        for truth in (True, False):
            yield "condition", lambda n, truth=truth: setattr(n, "test", ast.Constant(truth))
    if isinstance(node, ast.Slice):
        for end in ("lower", "upper"):
            if getattr(node, end) is not None:
                yield "slice", lambda n, end=end: setattr(n, end, None)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        for name in names:
            if name != node.id:
                yield "name", lambda n, name=name: setattr(n, "id", name)
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield "arguments", lambda n: n.args.reverse()
    if isinstance(node, ast.comprehension) and node.ifs:
        yield "filter", lambda n: n.ifs.clear()
    for block in ("body", "orelse"):
        for position, statement in enumerate(getattr(node, block, ())) if isinstance(node, ast.stmt) else ():
            docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if not docstring and not isinstance(statement, ast.Pass):
                yield (
                    f"left out {ast.unparse(statement)[:50]!r}",
                    lambda n, block=block, position=position: getattr(n, block).__setitem__(position, ast.Pass()),
                )


def functions(chapter: proof.Chapter, step: Step) -> Iterator[ast.FunctionDef]:
    """The answers of a step."""
    ids = chapter.answers_of(step)
    for cell in chapter.solved:
        if cell.grade_id in ids:
            yield from (node for node in ast.parse(cell.source).body if isinstance(node, ast.FunctionDef))


def with_change(step: Step, names: dict[str, Any], function: ast.FunctionDef) -> Any:
    """The step's subject once the changed function has been run among the names of the notebook, which are used up."""
    source = ast.unparse(ast.fix_missing_locations(function))
    where = f"<changed {next(NUMBERS)}>"
    linecache.cache[where] = (len(source), None, source.splitlines(keepends=True), where)  # where Triton looks
    exec(compile(source, where, "exec"), names)
    return names[step.subject]


def survivors(chapter: proof.Chapter, step: Step) -> Iterator[str]:
    """What the step's check does not notice."""
    for function in functions(chapter, step):
        decorators, function.decorator_list = function.decorator_list, []
        for what, changed in changes(function):
            changed.decorator_list = decorators
            outcome = examine(step, with_change(step, chapter.solution(), changed), TIME_LIMIT).outcome
            TALLY[outcome] = TALLY.get(outcome, 0) + 1
            if outcome == "passed":
                yield f"{step.exercise_id} {changed.name} {what}"


NUMBERS = itertools.count()
TALLY: dict[str, int] = {}


def main() -> int:
    """Print the survivors of these chapters, or of all; always 0, since a survivor is for a person to judge."""
    chapters: dict[str, proof.Chapter] = {}
    start = time.monotonic()
    for step in steps().values():
        number = step.exercise_id[:2]
        if sys.argv[1:] and number not in sys.argv[1:]:
            continue
        chapter = chapters.setdefault(number, proof.Chapter(ROOT, number))
        for survivor in survivors(chapter, step):
            print(textwrap.shorten(survivor, 220), flush=True)
    print(f"{sum(TALLY.values())} changes in {time.monotonic() - start:.0f} s: {TALLY}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
