"""A Llama-family model out of a folder in the hub's format: config.json, safetensors, tokenizer.json.

What config.json asks for and the forward pass does not have is refused here, by name. Files are read only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer as RawTokenizer
from torch import Tensor

from refimpl.serving.fields import positive_int, positive_number
from refimpl.serving.llama import LlamaConfig
from refimpl.serving.tokenizer import Tokenizer

_INDEX_FILE, _SINGLE_FILE = "model.safetensors.index.json", "model.safetensors"


def read_hub_folder(folder: Path) -> tuple[LlamaConfig, dict[str, Tensor], Tokenizer]:
    """Read everything that it takes to run the model in a folder; its shape, its weights by name, and its tokenizer.

    Raises:
        FileNotFoundError: for a file that the folder lacks.
        ValueError: for a damaged file, a model of another family, or a setting that the forward pass does not have.
    """
    config = _config(_read_json(folder, "config.json"), folder)
    # Where this one names end tokens, they count rather than those of config.json.
    generation = _read_json(folder, "generation_config.json", required=False)
    try:
        config = _with_eos(config, generation.get("eos_token_id"))
    except ValueError as error:
        raise ValueError(f"{folder}/generation_config.json: {error}") from error
    return config, _read_safetensors(folder), _tokenizer(folder)


def _config(raw: Mapping[str, Any], folder: Path) -> LlamaConfig:
    """The shape that a config.json describes. ValueError for a model that the forward pass would get wrong."""
    # transformers 5 writes rope_parameters, older versions rope_theta and rope_scaling.
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"{folder}/config.json: the rope settings are {rope!r}, they must be an object")
    rope = {"rope_theta": raw.get("rope_theta")} | rope
    _refuse_unsupported(raw, rope, folder)
    try:
        heads = positive_int(raw, "num_attention_heads")
        hidden_size = positive_int(raw, "hidden_size")
        config = LlamaConfig(
            vocab_size=positive_int(raw, "vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=positive_int(raw, "intermediate_size"),
            num_hidden_layers=positive_int(raw, "num_hidden_layers"),
            num_attention_heads=heads,
            num_key_value_heads=positive_int(raw, "num_key_value_heads", heads),
            head_dim=positive_int(raw, "head_dim", hidden_size // heads),
            rms_norm_eps=positive_number(raw, "rms_norm_eps"),
            rope_theta=positive_number(rope, "rope_theta", 10000.0),
            max_position_embeddings=positive_int(raw, "max_position_embeddings"),
            tie_word_embeddings=_flag(raw, "tie_word_embeddings"),
            eos_token_ids=(),
        )
        return _with_eos(config, raw.get("eos_token_id"))
    except KeyError as missing:
        raise ValueError(f"{folder}/config.json has no {missing}") from missing
    except ValueError as error:
        raise ValueError(f"{folder}/config.json: {error}") from error


def _flag(raw: Mapping[str, Any], name: str) -> bool:
    """A field that is true or false, and false when absent. ValueError for anything else."""
    value = raw.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}, it must be true or false")
    return value


def _refuse_unsupported(raw: Mapping[str, Any], rope: Mapping[str, Any], folder: Path) -> None:
    """ValueError for another family, or for a setting that would change what the model computes."""
    if raw.get("model_type") != "llama":
        architectures = raw.get("architectures")
        named = ", ".join(map(str, architectures)) if isinstance(architectures, list) else "?"
        raise ValueError(
            f"{folder} holds a {raw.get('model_type')!r} model ({named}), only the Llama family runs here: "
            f"model_type 'llama', LlamaForCausalLM"
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


def _with_eos(config: LlamaConfig, eos: Any) -> LlamaConfig:
    """The config with these end tokens: one, several, or None to keep what it has. ValueError for anything else."""
    if eos is None:
        return config
    token_ids = eos if isinstance(eos, list) else [eos]
    if any(type(token_id) is not int or token_id < 0 for token_id in token_ids):
        raise ValueError(f"eos_token_id is {eos!r}, it must be an integer of 0 or more, or a list of such")
    return replace(config, eos_token_ids=tuple(token_ids))


def _read_safetensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of the folder, from one file or from the shards that the index names."""
    names = [_SINGLE_FILE]
    if (folder / _INDEX_FILE).is_file():
        weight_map = _read_json(folder, _INDEX_FILE).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
            raise ValueError(f"{folder / _INDEX_FILE} has no weight_map that names a file for each tensor")
        names = sorted(set(weight_map.values()))
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


def _tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder: tokenizer.json, and where there are any, its special tokens and chat template."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no tokenizer.json: a model folder needs one beside config.json")
    try:
        raw = RawTokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more particular
        raise ValueError(f"{path} is not a complete tokenizer: {error}") from error
    settings = _read_json(folder, "tokenizer_config.json", required=False)
    template_path = folder / "chat_template.jinja"
    template = settings.get("chat_template")
    if template_path.is_file():
        template = template_path.read_text(encoding="utf-8")
    elif isinstance(template, list):  # several, by name
        template = next((entry["template"] for entry in template if entry["name"] == "default"), None)
    special_tokens = {name: settings[name] for name in ("bos_token", "eos_token") if settings.get(name)}
    texts = {name: token["content"] if isinstance(token, dict) else token for name, token in special_tokens.items()}
    return Tokenizer(raw, template, texts)


def _read_json(folder: Path, name: str, required: bool = True) -> dict[str, Any]:
    """The object in a JSON file; an empty one where the file is absent and not required."""
    path = folder / name
    if not path.is_file():
        if required:
            raise FileNotFoundError(f"{folder} has no {name}: a model folder needs one")
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object")
    return content
