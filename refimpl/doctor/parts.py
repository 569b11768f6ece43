"""What single chapters, tests and instructors need besides: torch and its kernels, the model, a browser, grading tools.

What of it is missing is needed later or by others, and said so; what is there and broken is wrong.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from refimpl.doctor.environment import INSTRUCTORS, installed
from refimpl.doctor.finding import ROOT, Finding, ProbeFailed, install, probe, python
from refimpl.serving.fetch_model import model_path, verified_model_path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER_TESTS = "browser tests"
FROM_TORCH_ON, MODEL_CHAPTER = "chapters 9 to 12", "chapter 11"
WITH_TORCH = """
import json, torch
from refimpl.device.triton_kernels import triton
cuda = torch.cuda.is_available()
print(json.dumps({
    "torch": torch.__version__,
    "built for": torch.version.cuda,
    "gpu": torch.cuda.get_device_name() if cuda else None,
    "triton": triton.__version__ if triton else None,
}))
"""


def check_attention(root: Path) -> list[Finding]:
    """Which path attention takes: the compiled kernel, or torch with the kernel in Triton's interpreter."""
    if installed("torch") is None:
        return [Finding("attention", "wrong", FROM_TORCH_ON, "torch is not installed", install(root))]
    try:
        found = probe([sys.executable], WITH_TORCH, ROOT)
    except ProbeFailed as error:
        mend = f"{python()} -m pip install --force-reinstall --no-deps torch=={installed('torch')}"
        return [Finding("attention", "wrong", FROM_TORCH_ON, f"torch cannot be imported: {error}", mend)]
    findings = [Finding("attention", "ok", FROM_TORCH_ON, f"torch {found['torch']}, {_path_of_attention(found)}")]
    if found["gpu"] is None and shutil.which("nvidia-smi"):
        text = f"nvidia-smi is here, but torch {found['torch']} finds no CUDA device"
        mend = f"{python()} -m pip install --force-reinstall torch=={installed('torch')}"
        if found["built for"]:
            mend = f"nvidia-smi, which names the driver: it has to be one for CUDA {found['built for']}"
        findings.append(Finding("gpu", "missing", "the compiled kernel", text, mend))
    return findings


def _path_of_attention(found: dict[str, str | None]) -> str:
    kernel = f"Triton {found['triton']}" if found["triton"] else "no Triton"
    if found["gpu"]:
        return f"{kernel}: " + ("the compiled kernel" if found["triton"] else "torch") + f" on {found['gpu']}"
    if found["triton"]:
        return f"{kernel}, no CUDA: torch on the CPU, chapter 10's kernel in Triton's interpreter"
    return f"{kernel}, no CUDA: torch on the CPU, chapter 10's kernel is written and not run"


def check_model(root: Path) -> list[Finding]:
    """Whether the model of the capstone is in the cache, and whole."""
    fetch = f"{python()} -m refimpl fetch-model"
    try:
        return [Finding("model", "ok", MODEL_CHAPTER, f"{verified_model_path()}, its checksum is right")]
    except FileNotFoundError:
        text = f"{model_path().name} is not in {model_path().parent}"
        return [Finding("model", "missing", MODEL_CHAPTER, text, fetch)]
    except ValueError as error:
        return [Finding("model", "wrong", MODEL_CHAPTER, str(error).partition(": fetch it")[0], fetch)]


def check_browser(root: Path) -> list[Finding]:
    """Whether there is a browser for the tests that drive JupyterLab."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found:
        return [Finding("browser", "ok", BROWSER_TESTS, found)]
    mend = {"Linux": "apt install chromium", "Darwin": "brew install --cask google-chrome"}
    text = f"none of {', '.join(BROWSERS)} is on the PATH"
    return [Finding("browser", "missing", BROWSER_TESTS, text, mend.get(platform.system(), "install Google Chrome"))]


def check_grading(root: Path) -> list[Finding]:
    """What `grade` needs, and what stands around a submission."""
    missing = [name for name in ("nbgrader", "distributed") if installed(name) is None]
    if missing:
        text = f"{' and '.join(missing)} not installed, so `grade` and `release` do not run"
        tools = Finding("grading", "missing", INSTRUCTORS, text, install(root, "requirements-dev.txt"))
    else:
        text = ", ".join(f"{name} {installed(name)}" for name in ("nbgrader", "distributed"))
        tools = Finding("grading", "ok", INSTRUCTORS, text)
    return [tools, _walls()]


def _walls() -> Finding:
    from refimpl.grade import walls

    if walls.bubblewrap() is not None:
        return Finding("walls", "ok", INSTRUCTORS, walls.in_force())
    mend = {"Linux": "apt install bubblewrap"}.get(platform.system(), "grade on Linux, or read the answers first")
    if shutil.which("bwrap"):  # Ubuntu 24.04 lets no program make namespaces by itself
        mend = "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 kernel.unprivileged_userns_clone=1"
    return Finding("walls", "missing", INSTRUCTORS, walls.in_force(), mend)
