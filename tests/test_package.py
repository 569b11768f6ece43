"""The package as a whole: what importing it costs, its layers, its versions, its documents."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import refimpl

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HEAVY = ("torch", "numpy", "matplotlib", "ipywidgets", "IPython", "nbformat", "nbgrader")


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_refimpl_and_its_core_loads_nothing_heavy():
    loaded = python(
        "import sys, refimpl; [getattr(refimpl, n) for n in ('BlockSpaceManager', 'SchedulerConfig', 'check')];"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_importing_refimpl_takes_under_a_tenth_of_a_second():
    best = min(
        float(python("import time; t = time.perf_counter(); import refimpl; print(time.perf_counter() - t)"))
        for _ in range(3)
    )
    assert best < 0.1


def test_the_core_and_the_command_line_import_nothing_that_windows_lacks():
    """S7."""
    posix = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
    core = [path.stem for path in (ROOT / "refimpl").glob("*.py") if path.stem not in ("__main__", "notebooks")]
    python(
        f"import sys, importlib; sys.modules.update(dict.fromkeys({posix}));"
        f"[importlib.import_module('refimpl.' + name) for name in {[*core, 'doctor', 'checks', 'grade.walls']}];"
        "from refimpl.cli import _parser; _parser()"
    )


def test_every_public_name_exists_and_an_unknown_one_is_an_attribute_error():
    assert dir(refimpl) == sorted(refimpl.__all__)
    for name in refimpl.__all__:
        assert getattr(refimpl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'BlockManger'"):
        refimpl.BlockManger  # noqa: B018


def test_type_checkers_see_the_same_public_names():
    tree = ast.parse((ROOT / "refimpl/__init__.py").read_text())
    seen = {a.asname for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for a in node.names if a.asname}
    assert seen == set(refimpl.__all__)


def name_of(text):
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", text).lower()


def locked_in(file):
    lines = [line for line in (ROOT / file).read_text().splitlines() if line and line[0] not in "#-"]
    return {name_of(requirement.name): requirement for requirement in map(Requirement, lines)}


LEARNERS = locked_in("requirements.txt")
DEVELOPERS = locked_in("requirements-dev.txt")
LOCK = LEARNERS | DEVELOPERS


def asked_for(*extras):
    """What the project asks for in these extras, those that they contain included."""
    listed = [Requirement(text) for text in PYPROJECT["project"]["optional-dependencies"][extras[0]]] if extras else []
    inner = [extra for requirement in listed if requirement.name == "refimpl" for extra in requirement.extras]
    rest = asked_for(*inner, *extras[1:]) if extras else []
    return [requirement for requirement in listed if requirement.name != "refimpl"] + rest


def test_the_lock_has_one_exact_version_of_everything_that_the_project_asks_for():
    """F20: server and front end cannot drift apart, each package is pinned in one place."""
    assert all(re.fullmatch(r"==[^,*]+", str(requirement.specifier)) for requirement in LOCK.values())
    assert LEARNERS.keys() & DEVELOPERS.keys() == set()
    for requirement in asked_for(*PYPROJECT["project"]["optional-dependencies"]):
        locked = str(LOCK[name_of(requirement.name)].specifier).removeprefix("==")
        assert requirement.specifier.contains(locked), f"{requirement} does not admit the locked {locked}"


def test_a_learner_installs_what_lessons_need_and_no_more():
    if any(version(name) not in need.specifier for name, need in LEARNERS.items() if name != "triton"):
        pytest.skip("other versions than the lock's are installed here, and may need other packages")
    needed, todo = set(), asked_for("serving", "lab")
    while todo:
        requirement = todo.pop()
        for extra in ["", *requirement.extras]:
            if (requirement.name, extra) not in needed:
                needed.add((requirement.name, extra))
                needs = map(Requirement, requires(requirement.name) or [])
                todo += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    assert {name_of(name) for name, _ in needed} - {"setuptools"} == LEARNERS.keys()  # pip's lists leave it out


def test_the_developers_lock_adds_to_the_learners():
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    assert [line for line in lines if line.startswith("-")] == ["-r requirements.txt"]
    assert {"nbgrader", "distributed", "pytest", "pytest-xdist"} <= DEVELOPERS.keys()


INSTRUCTORS = ("refimpl.release", "refimpl.grade")


def imports(path):
    """The packages that a file of refimpl imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


def test_nothing_that_a_learner_runs_imports_what_only_developers_have():
    sold_as = packages_distributions()
    for path in sorted((ROOT / "refimpl").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in set(imports(path)) - sys.stdlib_module_names - {"refimpl"}:
            lock = LOCK if module.startswith(INSTRUCTORS) else LEARNERS
            assert {name_of(name) for name in sold_as[package]} & lock.keys(), f"{module} imports {package}"


def test_torch_and_triton_are_the_pair_that_was_tested():
    assert str(LOCK["torch"].specifier) == "==2.13.0"
    assert str(LOCK["triton"].specifier) == "==3.7.1"
    linux = {"platform_system": "Linux", "platform_machine": "x86_64"}
    assert LOCK["triton"].marker.evaluate(linux)
    for other in ({"platform_system": "Darwin"}, {"platform_machine": "aarch64"}):
        assert not LOCK["triton"].marker.evaluate(linux | other)


def test_ranges_in_the_project_stay_wide():
    for extra in PYPROJECT["project"]["optional-dependencies"].values():
        assert not [text for text in extra if "==" in text.partition(";")[0]]


def test_environment_yml_is_conda_forge_and_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["channels"] == ["conda-forge"]
    python_pin, pip, pips = environment["dependencies"]
    assert (pip, pips) == ("pip", {"pip": ["-r requirements.txt"]})
    assert python_pin.startswith("python=")
    assert SpecifierSet(PYPROJECT["project"]["requires-python"]).contains(python_pin.removeprefix("python="))
    assert "-e ." in (ROOT / "requirements.txt").read_text().splitlines()


LESSONS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def minutes(path):
    return json.loads(path.read_text())["metadata"]["course"]["minutes"]


def test_the_readme_lists_the_lessons_that_are_there_with_the_minutes_that_they_say():
    """H4: minutes are written down in the notebooks; the table repeats them, and nothing else."""
    rows = []
    for path in LESSONS:
        exercise = ROOT / "exercises" / path.stem / path.name
        link = f"[{minutes(exercise)} min]({exercise.relative_to(ROOT)})" if exercise.exists() else "–"
        number, _, name = path.stem.partition("_")
        rows.append(f"| {number} | [{name}](notebooks/{path.name}) | {minutes(path)} min | {link} |")
    assert re.findall(r"^\| \d\d \|.*$", (ROOT / "README.md").read_text(), re.MULTILINE) == rows


def test_the_map_in_the_start_notebook_links_the_lessons_that_are_there():
    cells = json.loads(LESSONS[0].read_text())["cells"]
    (course_map,) = ["".join(cell["source"]) for cell in cells if cell["id"] == "map"]
    rows = re.findall(r"^\| (?:\[\d+ \w+\]\((\w+\.ipynb)\)|\d+ \w+) \|.*\|$", course_map, re.MULTILINE)
    assert len(rows) == 13
    assert [name for name in rows if name] == [path.name for path in LESSONS[1:]]
    in_preparation = [line for line in course_map.splitlines() if "in preparation" in line]
    assert [line for line in in_preparation if ".ipynb" in line] == []


def test_every_public_thing_says_what_it_is():
    """D6."""
    for path in (ROOT / "refimpl").rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree) or not tree.body, f"{path.name} does not say what it owns"
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"
