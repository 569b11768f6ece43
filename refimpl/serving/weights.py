"""From a name, a GGUF file or a hub folder to a model that runs.

A model that would answer wrongly is refused before it runs: the readers refuse another architecture and settings that
the forward pass does not have, and this module a tensor that is missing, of another shape, or without a place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from refimpl.serving.fetch_model import MODEL_NAME, verified_model_path
from refimpl.serving.gguf_file import read_gguf
from refimpl.serving.hub_folder import read_hub_folder
from refimpl.serving.llama import Llama, LlamaConfig, weight_shapes
from refimpl.serving.random_model import RANDOM_MODEL, random_model
from refimpl.serving.tokenizer import Tokenizer

DTYPES = {
    "auto": torch.float32,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run: the network and the tokenizer that belongs to it."""

    network: Llama
    tokenizer: Tokenizer


def load_model(model: str | Path, dtype: str = "auto", device: str = "cpu") -> LoadedModel:
    """Read a Llama-family model.

    Args:
        model: "smollm2-135m", which `python -m refimpl fetch-model` has fetched; "random-tiny", which needs no file
            and knows nothing; the path of a GGUF file; or that of a folder in the hub's format (config.json,
            model.safetensors or its shards with their index, tokenizer.json).
        dtype: what the weights are converted to: "float32" ("auto" too), "float16" or "bfloat16".
        device: where the model lies and is computed: "cpu" or "cuda".

    Raises:
        FileNotFoundError: for a file that is not there, with the place where it was looked for.
        ValueError: for a model of another family, a setting that is not supported, a damaged file, or a device that is
            not there.
    """
    if device not in ("cpu", "cuda"):
        raise ValueError(f"device is {device!r}, it must be 'cpu' or 'cuda'")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is 'cuda', but torch {torch.__version__} finds no CUDA device: use device 'cpu'")
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, it must be one of {sorted(DTYPES)}")
    path = verified_model_path() if model == MODEL_NAME else Path(model)
    if model == RANDOM_MODEL:
        config, weights, tokenizer = random_model()
    elif path.is_dir():
        config, weights, tokenizer = read_hub_folder(path)
    elif path.is_file():
        config, weights, tokenizer = read_gguf(path)
    else:
        raise FileNotFoundError(f"no model {str(model)!r}: it is neither {MODEL_NAME!r}, nor a GGUF file, nor a folder")
    weights = _checked(weights, config, path)
    weights = {name: tensor.to(device, DTYPES[dtype]) for name, tensor in weights.items()}
    return LoadedModel(Llama(config, weights), tokenizer)


def _checked(weights: dict[str, Tensor], config: LlamaConfig, path: Path) -> dict[str, Tensor]:
    """The tensors that the model uses. ValueError unless they are all there, in shape, and no others are."""
    if config.num_hidden_layers > len(weights):
        raise ValueError(
            f"{path} has {len(weights)} tensors, too few for the {config.num_hidden_layers} layers of its configuration"
        )
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
