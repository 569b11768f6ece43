"""From a name, a GGUF file or a hub folder to a model that runs.

Everything that could make a model answer wrongly is refused here, before it runs: another architecture, a setting
that the forward pass does not have, a tensor that is missing, of another shape, or without a place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from refimpl.serving.fetch_model import MODEL_NAME, model_path
from refimpl.serving.gguf_file import read_gguf
from refimpl.serving.llama import Llama, LlamaConfig, weight_shapes
from refimpl.serving.tokenizer import Tokenizer, tokenizer_from_folder

DTYPES = {
    "auto": torch.float32,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
_INDEX_FILE, _SINGLE_FILE = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run: the network and the tokenizer that belongs to it."""

    network: Llama
    tokenizer: Tokenizer


def load_model(model: str | Path, dtype: str = "auto") -> LoadedModel:
    """Read a Llama-family model.

    Args:
        model: "smollm2-135m", which `python -m refimpl fetch-model` has fetched; the path of a GGUF file; or that of
            a folder in the hub's format (config.json, model.safetensors or its shards with their index,
            tokenizer.json).
        dtype: what the weights are converted to: "float32" ("auto" too), "float16" or "bfloat16".

    Raises:
        FileNotFoundError: for a file that is not there, with the place where it was looked for.
        ValueError: for a model of another family, a setting that is not supported, or a damaged file.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, it must be one of {sorted(DTYPES)}")
    path = model_path() if model == MODEL_NAME else Path(model)
    if path.is_dir():
        config, weights, tokenizer = _read_hub_folder(path)
    elif path.is_file():
        config, weights, tokenizer = read_gguf(path)
    elif model == MODEL_NAME:
        raise FileNotFoundError(
            f"{path.name} is not in {path.parent}: fetch it once with `python -m refimpl fetch-model`"
        )
    else:
        raise FileNotFoundError(f"no model {str(model)!r}: it is neither {MODEL_NAME!r}, nor a GGUF file, nor a folder")
    weights = _checked(weights, config, path)
    return LoadedModel(Llama(config, {name: tensor.to(DTYPES[dtype]) for name, tensor in weights.items()}), tokenizer)


def _read_hub_folder(folder: Path) -> tuple[LlamaConfig, dict[str, Tensor], Tokenizer]:
    config = _config_from_hub(_read_json(folder / "config.json", folder), folder)
    generation = folder / "generation_config.json"
    if generation.is_file():  # where it names end tokens, these count rather than config.json's
        config = _with_eos(config, _read_json(generation, folder).get("eos_token_id"))
    return config, _read_safetensors(folder), tokenizer_from_folder(folder)


def _config_from_hub(raw: Mapping[str, Any], folder: Path) -> LlamaConfig:
    """The shape that a config.json describes. ValueError for a model that the forward pass would get wrong."""
    if raw.get("model_type") != "llama":
        raise ValueError(
            f"{folder} holds a {raw.get('model_type')!r} model ({', '.join(raw.get('architectures') or ['?'])}), "
            f"only the Llama family runs here: model_type 'llama', LlamaForCausalLM"
        )
    # transformers 5 writes rope_parameters, older versions rope_theta and rope_scaling.
    rope = {"rope_theta": raw.get("rope_theta", 10000.0)} | dict(
        raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    )
    for name, value, supported in (
        ("rope scaling", rope.get("rope_type", rope.get("type", "default")), "default"),
        ("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0), 1.0),
        ("hidden_act", raw.get("hidden_act", "silu"), "silu"),
        ("attention_bias", raw.get("attention_bias", False), False),
        ("mlp_bias", raw.get("mlp_bias", False), False),
        ("quantization_config", raw.get("quantization_config"), None),
    ):
        if value != supported:
            raise ValueError(f"{folder}/config.json: {name} is {value!r}, supported is {supported!r}")
    try:
        heads = raw["num_attention_heads"]
        config = LlamaConfig(
            vocab_size=raw["vocab_size"],
            hidden_size=raw["hidden_size"],
            intermediate_size=raw["intermediate_size"],
            num_hidden_layers=raw["num_hidden_layers"],
            num_attention_heads=heads,
            num_key_value_heads=raw.get("num_key_value_heads") or heads,
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            rms_norm_eps=raw["rms_norm_eps"],
            rope_theta=rope["rope_theta"],
            max_position_embeddings=raw["max_position_embeddings"],
            tie_word_embeddings=raw.get("tie_word_embeddings", False),
            eos_token_ids=(),
        )
    except KeyError as missing:
        raise ValueError(f"{folder}/config.json has no {missing}") from missing
    return _with_eos(config, raw.get("eos_token_id"))


def _with_eos(config: LlamaConfig, eos: int | list[int] | None) -> LlamaConfig:
    """The config with these end tokens: one, several, or None to keep what it has."""
    if eos is None:
        return config
    return replace(config, eos_token_ids=tuple(eos) if isinstance(eos, list) else (eos,))


def _read_safetensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the folder, from one file or from the shards that the index names."""
    names = [_SINGLE_FILE]
    if (folder / _INDEX_FILE).is_file():
        names = sorted(set(_read_json(folder / _INDEX_FILE, folder)["weight_map"].values()))
    weights: dict[str, Tensor] = {}
    for name in names:
        path = folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{folder} has no {name}: it needs {_SINGLE_FILE}, or all shards of {_INDEX_FILE}")
        try:
            weights |= load_file(path)
        except SafetensorError as error:
            raise ValueError(
                f"{path} ({path.stat().st_size} bytes) is damaged or incomplete: {error}; copy or fetch it again"
            ) from error
    return weights


def _checked(weights: dict[str, Tensor], config: LlamaConfig, path: Path) -> dict[str, Tensor]:
    """The tensors that the model uses. ValueError unless they are all there, in shape, and no others are."""
    expected = weight_shapes(config)
    # A tied model may store its output matrix once more, and old files store what follows from the config.
    weights = {
        name: tensor
        for name, tensor in weights.items()
        if not name.endswith("rotary_emb.inv_freq") and not (config.tie_word_embeddings and name == "lm_head.weight")
    }
    missing, unknown = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing:
        raise ValueError(f"{path} lacks {len(missing)} of {len(expected)} tensors, the first is {missing[0]}")
    if unknown:
        raise ValueError(f"{path} has {len(unknown)} tensors that a Llama has no place for, the first is {unknown[0]}")
    for name, shape in expected.items():
        if tuple(weights[name].shape) != shape:
            raise ValueError(
                f"{path}: {name} is {list(weights[name].shape)}, the model's configuration asks for {list(shape)}"
            )
    return weights


def _read_json(path: Path, folder: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no {path.name}: a model folder needs one")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    return content
