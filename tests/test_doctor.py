"""`python -m refimpl doctor`: each planted fault is a line that says what is there, who needs it and what mends it."""

import ast
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from collections import namedtuple
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from refimpl import doctor
from refimpl.doctor import environment, finding, jupyter, parts
from refimpl.grade import walls
from refimpl.serving import fetch_model

ROOT = Path(__file__).parents[1]
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def checkout(tmp_path):
    """A root with the lock and the project's file, to be spoilt."""
    for name in ("requirements.txt", "requirements-dev.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def report(monkeypatch, capsys):
    """The exit code and what is printed when only these checks run."""

    def run(*names, root=ROOT, as_json=False):
        monkeypatch.setattr(doctor, "CHECKS", {name: doctor.CHECKS[name] for name in names})
        monkeypatch.setattr(doctor.examine, "__defaults__", (root,))
        code = doctor.run(Namespace(json=as_json))
        return code, capsys.readouterr().out

    return run


@pytest.fixture
def versions(monkeypatch):
    """Pretend that packages have other versions, or, with None, are not installed."""
    pretended = {}

    def version(name, real=environment.version):
        if name in pretended and pretended[name] is None:
            raise PackageNotFoundError(name)
        return pretended.get(name) or real(name)

    monkeypatch.setattr(environment, "version", version)
    return pretended


def rows(text):
    """(status, name, who needs it and the rest) of each line, and the command below it."""
    found = []
    for line in text.splitlines()[:-1]:
        if line.startswith(" "):
            found[-1] = (*found[-1], line.partition("mend it:")[2].strip())
        else:
            status, name, rest = line.split(maxsplit=2)
            found.append((status, name, re.sub(" +", " ", rest.removeprefix("needed for "))))
    return found


def test_where_all_is_well_every_line_is_ok():
    """The whole of it, as one types it, in the environment that runs the tests."""
    command = [sys.executable, "-m", "refimpl", "doctor", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    found = json.loads(ran.stdout)
    needed = [line for line in found if line["status"] != "ok" and line["name"] in ("python", "kernel", "widgets")]
    assert needed == []
    assert ran.returncode == any(line["status"] == "wrong" for line in found), ran.stdout
    assert {"python", "versions", "kernel", "widgets", "attention", "model", "disk", "browser", "grading", "walls"} <= {
        line["name"] for line in found
    }
    assert all(line["needed_for"] and bool(line["mend"]) == (line["status"] != "ok") for line in found)
    assert ran.stderr == ""


def test_a_python_that_is_too_old_is_named_with_the_limit(report, checkout):
    project = checkout / "pyproject.toml"
    project.write_text(project.read_text().replace('requires-python = ">=3.11"', 'requires-python = ">=3.99"'))
    code, text = report("python", root=checkout)
    ((status, name, line, mend),) = rows(text)
    assert (code, status, name) == (1, "wrong", "python")
    assert f"{platform.python_version()}, 3.99 or newer is needed" in line
    assert "PYTHON=" in mend


def test_the_oldest_python_is_the_same_in_the_project_and_before_the_command_line():
    """What is below it cannot import the package, so it is told before."""
    project = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    source = (ROOT / "refimpl/__main__.py").read_text()
    assert f"sys.version_info < ({project[1]}, {project[2]})" in source
    assert f"needs Python {project[1]}.{project[2]} or newer" in source
    fake = "import sys, runpy; sys.version_info = (3, 9, 2); runpy.run_module('refimpl', run_name='__main__')"
    ran = subprocess.run([sys.executable, "-c", fake], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert re.fullmatch(r"This course needs Python .* or newer, this is 3\.9\.2: make lab PYTHON=.*\n", ran.stderr)


@pytest.mark.parametrize("name", ["jupyterlab", "ipywidgets", "torch", "triton"])
def test_F20_a_learners_package_with_another_version_is_named_with_both(report, versions, name):
    if name not in environment.locked(ROOT / "requirements.txt"):
        pytest.skip(f"the lock has no {name} for this machine")
    versions[name] = "0.0.1"
    code, text = report("versions")
    wanted = environment.locked(ROOT / "requirements.txt")[name]
    (wrong,) = [row for row in rows(text) if row[0] == "wrong"]
    assert code == 1
    assert f"{name} 0.0.1 is installed, the lock says {wanted}" in wrong[2]
    assert wrong[2].startswith(environment.NEEDED_FOR.get(name, "every chapter"))
    assert wrong[3].endswith("-m pip install -r requirements.txt")


@pytest.mark.parametrize("name", ["nbval", "pytest", "nbgrader"])
def test_F20_so_is_a_developers(report, versions, name):
    versions[name] = "0.0.1"
    code, text = report("versions")
    (wrong,) = [row for row in rows(text) if row[0] == "wrong"]
    assert code == 1
    assert f"{name} 0.0.1 is installed" in wrong[2]
    assert wrong[3].endswith("requirements-dev.txt")


def test_where_all_agree_a_file_of_the_lock_is_one_line(report, versions):
    for name, version in (environment.locked(ROOT / "requirements.txt")).items():
        versions[name] = f"{version}+cpu" if name == "torch" else version
    for name in environment.locked(ROOT / "requirements-dev.txt"):
        versions[name] = None
    code, text = report("versions")
    ((status, _, line),) = rows(text)
    assert (code, status) == (0, "ok")
    assert re.search(r"all \d+ packages are as requirements.txt says", line)


def test_S8_a_learner_without_the_developers_tools_lacks_nothing(report, versions):
    for name in environment.locked(ROOT / "requirements-dev.txt"):
        versions[name] = None
    code, text = report("versions", "grading")
    missing = [row for row in rows(text) if row[0] == "missing"]
    assert "instructors: nbgrader and distributed not installed" in missing[0][2]
    assert missing[0][3].endswith("-m pip install -r requirements-dev.txt")
    assert not [row for row in rows(text) if "dev" in row[2]]
    assert code == any(row[0] == "wrong" for row in rows(text))


def test_an_instructors_package_that_is_missing_does_not_stop_a_learner(report, versions):
    versions["dask"] = None
    text = report("versions")[1]
    (row,) = [row for row in rows(text) if row[0] == "missing"]
    assert "instructors: dask is not installed" in row[2]


def test_packages_that_are_missing_are_a_line_each_and_many_are_one(report, versions):
    versions.update(tokenizers=None, matplotlib=None)
    code, text = report("versions")
    assert code == 1
    (first, second) = [row[2] for row in rows(text) if row[0] == "wrong"]
    assert re.match(r"every chapter: matplotlib is not installed, the lock says \d", first)
    assert re.match(r"chapter 11: tokenizers is not installed, the lock says \d", second)
    versions.update(dict.fromkeys(environment.locked(ROOT / "requirements.txt")))
    (row,) = [row for row in rows(report("versions")[1]) if row[0] == "wrong"]
    assert re.search(
        r"(\d+) of \1 packages of requirements.txt are not installed, such as jupyterlab, matplotlib", row[2]
    )


def test_damaged_metadata_of_a_package_is_a_package_that_is_missing(monkeypatch):
    monkeypatch.setattr(environment, "version", lambda name: {}["Version"])
    assert environment.installed("torch") is None
    monkeypatch.setattr(environment, "version", lambda name: None)
    assert environment.installed("torch") == "unknown"


def test_without_a_checkout_versions_are_not_compared_and_it_says_so(report, tmp_path):
    code, text = report("versions", root=tmp_path)
    ((status, _, line, mend),) = rows(text)
    assert (code, status) == (0, "missing")
    assert f"there is no requirements.txt in {tmp_path}" in line
    assert "checkout" in mend


class Spec:
    """A kernelspec as jupyter_client gives it."""

    env = {}

    def __init__(self, *argv, resource_dir="/nowhere/kernels/python3"):
        self.argv, self.resource_dir = list(argv), resource_dir


@pytest.fixture
def kernelspecs(tmp_path, monkeypatch):
    """A folder of kernelspecs that comes before all others."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    folder = tmp_path / "data/kernels/python3"
    folder.mkdir(parents=True)

    def write(*argv):
        spec = {"argv": list(argv), "display_name": "Python 3", "language": "python"}
        (folder / "kernel.json").write_text(json.dumps(spec))
        return folder

    return write


def kernel_row(report):
    code, text = report("kernel")
    return code, next(row for row in rows(text) if row[1] == "kernel")


def test_plain_python_is_the_python_that_runs_jupyterlab(report, kernelspecs):
    kernelspecs("python", "-m", "ipykernel_launcher", "-f", "{connection_file}")
    code, (status, _, line) = kernel_row(report)
    assert (code, status) == (0, "ok")
    assert f"starts {sys.executable} and imports refimpl" in line


def test_a_kernel_whose_python_is_gone_is_named(report, kernelspecs, tmp_path):
    kernelspecs(str(tmp_path / "gone/bin/python"), "-m", "ipykernel_launcher")
    code, (status, _, line, mend) = kernel_row(report)
    assert (code, status) == (1, "wrong")
    assert line.startswith("every chapter")
    assert f"there is no {tmp_path}/gone/bin/python" in line
    assert mend.endswith("-m ipykernel install --user")


def test_a_kernel_that_cannot_import_refimpl_is_named(report, kernelspecs, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    python.chmod(0o755)
    kernelspecs(str(python), "-m", "ipykernel_launcher")
    code, (status, _, line, _) = kernel_row(report)
    assert (code, status) == (1, "wrong")
    assert "No module named 'ipykernel'" in line


def test_a_kernel_with_another_checkouts_refimpl_is_named(report, kernelspecs, tmp_path):
    (tmp_path / "other/refimpl").mkdir(parents=True)
    (tmp_path / "other/refimpl/__init__.py").touch()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/other exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    kernelspecs(str(python), "-m", "ipykernel_launcher")
    code, (status, _, line, _) = kernel_row(report)
    assert (code, status) == (1, "wrong")
    assert f"has the refimpl of {tmp_path}/other" in line


def test_a_kernelspec_that_is_no_json_is_a_line(report, kernelspecs):
    (kernelspecs("python") / "kernel.json").write_text("{")
    code, (status, _, line, _) = kernel_row(report)
    assert (code, status) == (1, "wrong")
    assert "there is no python3 kernel" in line


def test_without_jupyter_there_is_no_kernel(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "jupyter_client.kernelspec", None)
    code, (status, _, line, mend) = kernel_row(report)
    assert (code, status) == (1, "wrong")
    assert "there is no python3 kernel" in line
    assert mend.endswith("-m pip install -r requirements.txt")


@pytest.fixture
def widgets(report, monkeypatch):
    """The line about widgets with a kernel that has this ipywidgets."""

    def run(ipywidgets="8.1.9"):
        answer = {"refimpl": str(ROOT / "refimpl/__init__.py"), "ipywidgets": ipywidgets}
        monkeypatch.setattr(jupyter, "probe", lambda *arguments: answer)
        code, text = report("kernel")
        return code, next(row for row in rows(text) if row[1] == "widgets")

    return run


def test_V1_F14_the_extension_that_shows_widgets_is_there(widgets):
    code, (status, _, line) = widgets()
    assert (code, status) == (0, "ok")
    assert re.search(r"@jupyter-widgets/jupyterlab-manager 5\.\S+ is enabled, ipywidgets is 8\.1\.9", line)


def test_V1_F14_an_extension_of_another_major_is_named_with_both(widgets, tmp_path, monkeypatch):
    package = tmp_path / "labextensions" / jupyter.WIDGETS / "package.json"
    package.parent.mkdir(parents=True)
    package.write_text('{"version": "3.1.1"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    code, (status, _, line, mend) = widgets()
    assert (code, status) == (1, "wrong")
    assert "ipywidgets 8.1.9 needs @jupyter-widgets/jupyterlab-manager 5, and 3.1.1 is there" in line
    assert "pip install" in mend


def test_V1_F14_an_extension_that_is_missing_is_named(widgets, monkeypatch, tmp_path):
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *parts: [str(tmp_path)])
    monkeypatch.setattr(jupyter, "_spec", lambda: Spec("python"))
    code, (status, _, line, mend) = widgets()
    assert (code, status) == (1, "wrong")
    assert line.startswith("chapter 8")
    assert "JupyterLab has no @jupyter-widgets/jupyterlab-manager" in line
    assert mend.endswith("jupyterlab_widgets")


def test_V1_F14_a_disabled_extension_is_named_and_the_command_enables_it(widgets, tmp_path, monkeypatch):
    """Disabled as JupyterLab writes it down, enabled with the command, in a home of its own."""
    for name in ("JUPYTER_CONFIG_DIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    page = tmp_path / "labconfig/page_config.json"
    page.parent.mkdir()
    page.write_text(json.dumps({"disabledExtensions": {jupyter.WIDGETS: True}}))
    code, (status, _, line, mend) = widgets()
    assert (code, status) == (1, "wrong")
    assert "is disabled" in line
    assert mend.endswith(f"-m jupyter labextension enable --level=user {jupyter.WIDGETS}")
    command = [sys.executable, *mend.partition(" ")[2].split()]
    subprocess.run(command, check=True, capture_output=True)
    assert widgets()[1][0] == "ok"


def test_the_level_is_that_of_the_folder(tmp_path):
    user = tmp_path / ".jupyter"
    assert jupyter._level(user, user) == "user"
    assert jupyter._level(Path(sys.prefix, "etc/jupyter"), user) == "sys_prefix"
    assert jupyter._level(Path("/usr/local/etc/jupyter"), user) == "system"


GPU = {"torch": "2.13.0", "built for": "13.0", "gpu": "NVIDIA H200", "triton": "3.7.1"}
NO_GPU = {**GPU, "gpu": None}


@pytest.mark.parametrize(
    ("found", "path"),
    [
        (GPU, "torch 2.13.0, Triton 3.7.1: the compiled kernel on NVIDIA H200"),
        ({**GPU, "triton": None}, "torch 2.13.0, no Triton: torch on NVIDIA H200"),
        (NO_GPU, "Triton 3.7.1, no CUDA: torch on the CPU, chapter 10's kernel in Triton's interpreter"),
        (
            {**NO_GPU, "triton": None},
            "no Triton, no CUDA: torch on the CPU, chapter 10's kernel is written and not run",
        ),
    ],
)
def test_the_path_that_attention_takes_is_said(report, monkeypatch, found, path):
    monkeypatch.setattr(parts, "probe", lambda *arguments: found)
    monkeypatch.setattr(shutil, "which", lambda name: found["gpu"] and f"/usr/bin/{name}")
    code, text = report("attention")
    ((status, _, line),) = rows(text)
    assert (code, status) == (0, "ok")
    assert line.endswith(path)


@pytest.mark.parametrize(
    ("built_for", "mend"), [(None, "pip install --force-reinstall torch=="), ("13.0", "CUDA 13.0")]
)
def test_a_gpu_that_torch_does_not_find_is_optional_and_named(report, monkeypatch, built_for, mend):
    monkeypatch.setattr(parts, "probe", lambda *arguments: {**NO_GPU, "built for": built_for})
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    code, text = report("attention")
    _, (status, name, line, command) = rows(text)
    assert (code, status, name) == (0, "missing", "gpu")
    assert "finds no CUDA device" in line
    assert mend in command


@pytest.mark.parametrize(
    ("torch", "said"),
    [
        ("raise OSError('libcudart.so.12: cannot open shared object file')", "OSError: libcudart.so.12"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", "exit code -6"),
        ("import time; time.sleep(60)", "no answer within 2 s"),
        ("import sys; print('hello'); sys.exit(0)", "it printed 'hello'"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_a_line(report, monkeypatch, tmp_path, torch, said):
    (tmp_path / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(finding, "TIME_LIMIT", 2.0)
    monkeypatch.setattr(finding, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    code, text = report("attention")
    ((status, _, line, mend),) = rows(text)
    assert (code, status) == (1, "wrong")
    assert line.startswith("chapters 9 to 12")
    assert said in line
    assert "--force-reinstall" in mend
    assert "Traceback" not in text


def test_without_torch_chapters_9_to_12_are_named(report, versions):
    versions["torch"] = None
    code, text = report("attention")
    ((status, _, line, _),) = rows(text)
    assert (code, status) == (1, "wrong")
    assert line.startswith("chapters 9 to 12")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("REFIMPL_CACHE", str(tmp_path))
    return tmp_path


def test_S8_a_model_that_was_not_fetched_is_missing_and_needed_for_chapter_11(report, cache):
    code, text = report("model")
    ((status, _, line, mend),) = rows(text)
    assert (code, status) == (0, "missing")
    assert f"chapter 11: SmolLM2-135M-Instruct.Q4_1.gguf is not in {cache}" in line
    assert mend.endswith("-m refimpl fetch-model")


def test_a_truncated_model_is_wrong(report, cache):
    fetch_model.model_path().write_bytes(b"GGUF")
    code, text = report("model")
    ((status, _, line, mend),) = rows(text)
    assert (code, status) == (1, "wrong")
    assert "is damaged (sha256 " in line
    assert mend.endswith("-m refimpl fetch-model")


def test_a_whole_model_is_ok(report, cache, monkeypatch):
    fetch_model.model_path().write_bytes(b"GGUF")
    monkeypatch.setattr(fetch_model, "_SHA256", fetch_model._sha256_of(fetch_model.model_path()))
    code, text = report("model")
    ((status, _, line),) = rows(text)
    assert (code, status) == (0, "ok")
    assert line.endswith("its checksum is right")


@pytest.mark.parametrize(("free", "status", "code"), [(1.0e9, "ok", 0), (0.94e9, "wrong", 1)])
def test_a_full_disk_is_named_with_the_room_and_the_limit(report, cache, monkeypatch, free, status, code):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2e9, 1e9, free))
    found, text = report("disk")
    first = rows(text)[0]
    assert (found, first[0]) == (code, status)
    assert f"{free / 1e9:.1f} GB free for {sys.prefix}, 1 GB is needed" in first[2]
    assert len(first) == (4 if status == "wrong" else 3)


def test_room_is_looked_for_where_the_cache_will_be(cache, monkeypatch):
    """Its folder need not be there yet; another disk is another line."""
    monkeypatch.setenv("REFIMPL_CACHE", str(cache / "not/there/yet"))
    assert environment.check_disk(ROOT)
    asked = []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: asked.append(path) or Usage(2e9, 1e9, 1e9))
    environment.check_disk(ROOT)
    assert asked[-1] == cache


def test_S8_a_browser_that_is_missing_is_needed_for_the_browser_tests(report, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, text = report("browser")
    ((status, _, line, _),) = rows(text)
    assert (code, status) == (0, "missing")
    assert "browser tests: none of chromium, " in line


def test_the_browser_tests_look_for_the_same_programs():
    source = (ROOT / "tests/browser/conftest.py").read_text()
    names = re.search(r"map\(shutil\.which, (\(.*?\))\)", source)
    assert ast.literal_eval(names[1]) == parts.BROWSERS


def test_S8_what_grading_lacks_without_bubblewrap_is_said(report, monkeypatch):
    monkeypatch.setattr(walls, "bubblewrap", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    code, text = report("grading")
    status, name, line, mend = rows(text)[-1]
    assert (code, status, name) == (0, "missing", "walls")
    assert "instructors: " in line
    assert "bubblewrap is not installed, so network and files are only refused by Python itself" in line
    assert mend == "apt install bubblewrap" or platform.system() != "Linux"
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/bwrap")
    status, name, line, mend = rows(report("grading")[1])[-1]
    assert "bubblewrap does not work on this machine" in line
    assert mend.startswith("sysctl")


def test_whatever_a_look_raises_is_a_line(report, monkeypatch):
    def raises(root):
        raise RuntimeError("two\nlines")

    monkeypatch.setitem(doctor.CHECKS, "kernel", raises)
    code, text = report("python", "kernel")
    assert code == 1
    assert rows(text)[0][0] == "ok"
    assert "this could not be looked at: RuntimeError: two lines" in rows(text)[1][2]


def test_json_says_the_same(report, cache):
    code, text = report("model", as_json=True)
    (found,) = json.loads(text)
    assert code == 0
    assert (found["name"], found["status"], found["needed_for"]) == ("model", "missing", "chapter 11")
    assert found["mend"].endswith("fetch-model")


def test_an_unknown_option_could_not_run():
    command = [sys.executable, "-m", "refimpl", "doctor", "--jsn"]
    assert subprocess.run(command, capture_output=True, cwd=ROOT, check=False).returncode == 2


def test_with_the_standard_library_alone_it_says_what_to_install(tmp_path):
    """No site-packages: every look ends in a line, with the learner's part of the lock as what mends it."""
    command = [sys.executable, "-S", "-E", "-m", "refimpl", "doctor"]
    ran = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert (ran.returncode, ran.stderr) == (1, "")
    wrong = {row[1]: row for row in rows(ran.stdout) if row[0] == "wrong"}
    assert wrong.keys() == {"versions", "kernel", "widgets", "attention"}
    for row in wrong.values():
        assert row[3].endswith("-m pip install -r requirements.txt")
    assert "could not be looked at" not in ran.stdout


def test_commands_are_right_from_another_folder_and_with_spaces(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my env/bin/python"))
    root = tmp_path / "my course"
    root.mkdir()
    assert finding.install(root) == f'"my env/bin/python" -m pip install -r "{root}/requirements.txt"'
    monkeypatch.chdir(root)
    assert finding.install(root) == f'"{tmp_path}/my env/bin/python" -m pip install -r requirements.txt'
