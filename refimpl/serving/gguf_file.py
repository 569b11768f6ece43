"""A Llama-family model out of one GGUF file: its shape, its tensors under the hub's names, its tokenizer.

Quantised tensors become float32. The file is read only; a file that ends too early is refused as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as RawTokenizer
from torch import Tensor

from refimpl.serving.fields import positive_int, positive_number
from refimpl.serving.llama import LlamaConfig
from refimpl.serving.tokenizer import Tokenizer

_HUB_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

# What runs before the byte-level split, by the name that a GGUF file gives to the whole.
_PRE_TOKENIZERS: dict[str, list[pre_tokenizers.PreTokenizer]] = {
    "default": [],
    "gpt-2": [],
    "smollm": [pre_tokenizers.Digits(individual_digits=True)],
}

_CONTROL, _USER_DEFINED = 3, 4  # token types that are matched as a whole in the text


def read_gguf(path: Path) -> tuple[LlamaConfig, dict[str, Tensor], Tokenizer]:
    """Read everything that it takes to run the model in a GGUF file; its shape, its weights by name, and its tokenizer.

    Raises:
        ValueError: for a file that is damaged or incomplete, or a model or tokenizer of another family.

    Source: the GGUF specification, https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
    """
    try:
        reader = GGUFReader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        size = path.stat().st_size
        raise ValueError(f"{path} ({size} bytes) is no complete GGUF file: copy or fetch it again") from error
    try:
        config = _config(metadata, {tensor.name for tensor in reader.tensors})
        tokenizer = _tokenizer(metadata)
        weights = dict(_weight(tensor, config) for tensor in reader.tensors)
    except KeyError as missing:
        raise ValueError(f"{path} has no field {missing}") from missing
    except (ValueError, NotImplementedError) as error:
        raise ValueError(f"{path}: {error}") from error
    return config, weights, tokenizer


def _config(metadata: Mapping[str, Any], tensor_names: set[str]) -> LlamaConfig:
    """The shape that the metadata describes. ValueError for another architecture, KeyError for a missing field."""
    architecture = metadata["general.architecture"]
    if architecture != "llama":
        raise ValueError(f"holds a {architecture!r} model, only 'llama' runs here")
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in tensor_names:
        raise ValueError(f"rope scaling ({scaling if scaling != 'none' else 'rope_freqs.weight'}) is not supported")
    heads = positive_int(metadata, "llama.attention.head_count")
    hidden_size = positive_int(metadata, "llama.embedding_length")
    head_dim = positive_int(metadata, "llama.attention.key_length", hidden_size // heads)
    rotated = metadata.get("llama.rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise ValueError(f"rotates {rotated} of {head_dim} dimensions of a head, supported is all of them")
    end_tokens = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot"))
    return LlamaConfig(
        vocab_size=len(metadata["tokenizer.ggml.tokens"]),
        hidden_size=hidden_size,
        intermediate_size=positive_int(metadata, "llama.feed_forward_length"),
        num_hidden_layers=positive_int(metadata, "llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=positive_int(metadata, "llama.attention.head_count_kv", heads),
        head_dim=head_dim,
        rms_norm_eps=positive_number(metadata, "llama.attention.layer_norm_rms_epsilon"),
        rope_theta=positive_number(metadata, "llama.rope.freq_base", 10000.0),
        max_position_embeddings=positive_int(metadata, "llama.context_length"),
        tie_word_embeddings="output.weight" not in tensor_names,
        eos_token_ids=tuple(dict.fromkeys(token for token in end_tokens if token is not None)),
    )


def _weight(tensor: Any, config: LlamaConfig) -> tuple[str, Tensor]:
    """One tensor of the file as (hub name, float32 tensor); a name that is not known stays as it is."""
    values = torch.from_numpy(numpy.array(dequantize(tensor.data, tensor.tensor_type), dtype=numpy.float32))
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.weight", tensor.name)
    if match is None or match[2] not in _HUB_NAMES:
        return tensor.name, values
    if match[2] == "attn_q":
        values = _halves_apart(values, config.num_attention_heads)
    elif match[2] == "attn_k":
        values = _halves_apart(values, config.num_key_value_heads)
    layer = "" if match[1] is None else f"model.layers.{match[1]}."
    return f"{layer}{_HUB_NAMES[match[2]]}.weight", values


def _halves_apart(weight: Tensor, num_heads: int) -> Tensor:
    """Undo the row order of GGUF's query and key matrices.

    There the two dimensions that rotary positions turn together are neighbours, in the hub's order they are half a
    head apart.
    """
    return weight.reshape(num_heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """The byte-level BPE that the metadata describes. ValueError for another kind, KeyError for a missing field."""
    model, pre = metadata["tokenizer.ggml.model"], metadata.get("tokenizer.ggml.pre", "default")
    if model != "gpt2" or pre not in _PRE_TOKENIZERS:
        raise ValueError(
            f"its tokenizer is {model!r} with pre-tokenizer {pre!r}, "
            f"supported: 'gpt2' with one of {sorted(_PRE_TOKENIZERS)}"
        )
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    raw = RawTokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=bool(metadata.get("tokenizer.ggml.add_space_prefix", False)))
    raw.pre_tokenizer = pre_tokenizers.Sequence([*_PRE_TOKENIZERS[pre], byte_level])
    raw.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True):
        if kind in (_CONTROL, _USER_DEFINED):
            raw.add_tokens([AddedToken(token, special=kind == _CONTROL, normalized=False)])
    special_tokens = {
        f"{name}_token": tokens[metadata[f"tokenizer.ggml.{name}_token_id"]]
        for name in ("bos", "eos")
        if f"tokenizer.ggml.{name}_token_id" in metadata
    }
    if metadata.get("tokenizer.ggml.add_bos_token", False):
        bos = special_tokens["bos_token"]
        raw.post_processor = processors.TemplateProcessing(f"{bos} $A", special_tokens=[(bos, raw.token_to_id(bos))])
    return Tokenizer(raw, metadata.get("tokenizer.chat_template"), special_tokens)
