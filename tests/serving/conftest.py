"""Models and recordings for the tests of the serving layer, loaded once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dense_llama import DenseLlama
from engines import DATA, Alone

from refimpl import LLM
from refimpl.serving.fetch_model import model_path
from refimpl.serving.weights import LoadedModel, load_model

collect_ignore = ["record_transformers.py"]  # runs in the environment of transformers, see there


@pytest.fixture(scope="session")
def tiny_folder() -> Path:
    return DATA / "tiny_llama"


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> LLM:
    return LLM(tiny_folder, num_gpu_blocks_override=256)


@pytest.fixture(scope="session")
def smollm2() -> LLM:
    if not model_path().is_file():
        pytest.skip(f"{model_path()} is not there: fetch it with `python -m refimpl fetch-model`")
    return LLM("smollm2-135m", num_gpu_blocks_override=256)


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Path) -> LoadedModel:
    return load_model(tiny_folder)


@pytest.fixture(scope="session")
def smollm2_model(smollm2: LLM) -> LoadedModel:
    return smollm2.llm_engine._model


@pytest.fixture(scope="session")
def dense_tiny(tiny_folder: Path) -> DenseLlama:
    return DenseLlama.from_folder(tiny_folder)


@pytest.fixture(scope="session")
def dense_smollm2(smollm2: LLM) -> DenseLlama:
    return DenseLlama.from_gguf(model_path())


@pytest.fixture(scope="session")
def alone(tiny_model: LoadedModel, dense_tiny: DenseLlama) -> Alone:
    return Alone(tiny_model, dense_tiny)


@pytest.fixture(params=["tiny", "smollm2"])
def recorded(request: pytest.FixtureRequest) -> tuple[LLM, dict[str, Any]]:
    """A model, and what transformers said about the same one."""
    name = {"tiny": "tiny_llama", "smollm2": "smollm2"}[request.param]
    recording = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return request.getfixturevalue(request.param), recording
