"""The kernel that runs the notebooks, and the part of JupyterLab that shows widgets.

Both are looked for as JupyterLab looks for them, without starting it: kernels through jupyter_client, extensions in the
folders and settings that jupyter_core names.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from refimpl.doctor.environment import EVERY_CHAPTER, installed
from refimpl.doctor.finding import ROOT, Finding, ProbeFailed, install, probe, python

WIDGETS = "@jupyter-widgets/jupyterlab-manager"
MANAGERS = {"8": "5"}  # major of ipywidgets -> major of the extension that shows its widgets
FIRST_WITH_WIDGETS = "chapter 8"
IN_KERNEL = """
import json, ipykernel, refimpl
from importlib.metadata import version
print(json.dumps({"refimpl": refimpl.__file__, "ipywidgets": version("ipywidgets")}))
"""


def check_jupyter(root: Path) -> list[Finding]:
    """The kernel, and the extension beside the ipywidgets that the kernel has."""
    spec = None
    try:
        spec = _spec()
        kernel = _start(spec)
    except ProbeFailed as error:
        text, kernel = f"the python3 kernel cannot run the notebooks: {error}", {}
    except Exception as error:  # noqa: BLE001  jupyter_client, where it is there, names each fault by its own class
        text, kernel = f"there is no python3 kernel: {str(error) or type(error).__name__}", {}
    else:
        other = Path(kernel["refimpl"]).resolve().parents[1]
        if other == ROOT:
            text = f"python3 starts {_interpreter(spec)} and imports refimpl"
            return [Finding("kernel", "ok", EVERY_CHAPTER, text), *_widgets(root, kernel["ipywidgets"])]
        text = f"the python3 kernel has the refimpl of {other}, this one is that of {ROOT}"
    mine = spec is None or os.path.dirname(_interpreter(spec)) == os.path.dirname(sys.executable)
    mend = install(root) if mine else _take_over(spec)
    return [Finding("kernel", "wrong", EVERY_CHAPTER, text, mend), *_widgets(root, kernel.get("ipywidgets"))]


def _spec() -> Any:
    """The kernelspec that JupyterLab takes for `python3`."""
    from jupyter_client.kernelspec import KernelSpecManager

    return KernelSpecManager().get_kernel_spec("python3")


def _interpreter(spec: Any) -> str:
    """The Python of a kernelspec; plain `python` is the one that runs JupyterLab."""
    program: str = spec.argv[0]
    this = {"python", f"python{sys.version_info[0]}", "python{}.{}".format(*sys.version_info[:2])}
    return sys.executable if program in this else program


def _start(spec: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:  # where no refimpl lies beside the notebook
        return probe([_interpreter(spec)], IN_KERNEL, Path(folder), spec.env)


def _take_over(spec: Any) -> str:
    """The command that writes this Python's kernel to where another Python's is."""
    where = "--sys-prefix" if Path(spec.resource_dir).is_relative_to(sys.prefix) else "--user"
    return f"{python()} -m ipykernel install {where}"


def _widgets(root: Path, kernel: str | None) -> Iterator[Finding]:
    """Whether JupyterLab shows the widgets of the kernel's ipywidgets, or of this Python's where there is no kernel."""
    kernel = kernel or installed("ipywidgets")
    if kernel is None:
        yield Finding("widgets", "wrong", FIRST_WITH_WIDGETS, "ipywidgets is not installed", install(root))
        return
    extension = _extension()
    if extension is None:
        text = f"JupyterLab has no {WIDGETS}, which shows the widgets of ipywidgets {kernel}"
        mend = f"{python()} -m pip install --force-reinstall --no-deps jupyterlab_widgets"
    elif (wanted := MANAGERS.get(kernel.partition(".")[0])) not in (None, extension.partition(".")[0]):
        text = f"ipywidgets {kernel} needs {WIDGETS} {wanted}, and {extension} is there"
        mend = install(root)
    elif (level := _disabled()) is not None:
        text = f"{WIDGETS} {extension} is disabled"
        mend = f"{python()} -m jupyter labextension enable --level={level} {WIDGETS}"
    else:
        text = f"{WIDGETS} {extension} is enabled, ipywidgets is {kernel}"
        yield Finding("widgets", "ok", FIRST_WITH_WIDGETS, text)
        return
    yield Finding("widgets", "wrong", FIRST_WITH_WIDGETS, text, mend)


def _extension() -> str | None:
    """The version of the widgets' extension that JupyterLab loads."""
    from jupyter_core.paths import jupyter_path

    for folder in jupyter_path("labextensions"):
        package = Path(folder, WIDGETS, "package.json")
        if package.exists():
            return str(json.loads(package.read_text("utf-8"))["version"])
    return None


def _disabled() -> str | None:
    """The level at which the extension is disabled, None where it is enabled."""
    from jupyter_core.paths import jupyter_config_dir, jupyter_config_path

    for folder in map(Path, jupyter_config_path()):  # the first that says anything about it counts
        for file in (folder / "labconfig/page_config.json", *sorted(folder.glob("labconfig/page_config.d/*.json"))):
            disabled = json.loads(file.read_text("utf-8")).get("disabledExtensions", {}) if file.exists() else {}
            if WIDGETS in disabled:
                return _level(folder, Path(jupyter_config_dir())) if disabled[WIDGETS] else None
    return None


def _level(folder: Path, of_the_user: Path) -> str:
    if folder == of_the_user:
        return "user"
    return "sys_prefix" if folder.is_relative_to(sys.prefix) else "system"
