"""The forward pass of a Llama-family model whose keys and values live in a paged cache.

One call computes one step: the prompts of some sequences, or one token of each. New keys and values go to the slots
that the step names, and attention reads them back through block tables alone. The model keeps no state between steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from refimpl.device.attention import decode_attention, paged_prefill_attention
from refimpl.device.kv_cache import KVCache
from refimpl.serving.linear import Linear
from refimpl.serving.model_runner import StepInput
from refimpl.serving.seam import DecodeAttention


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The shape of a model, under the hub's names.

    vocab_size: tokens that there are. hidden_size: elements of a token between layers; intermediate_size: inside a
    feed-forward block. num_hidden_layers: layers. num_attention_heads: query heads, which share num_key_value_heads
    evenly, of head_dim elements each. rms_norm_eps, rope_theta: constants of the norm and of the rotary positions.
    max_position_embeddings: tokens that a sequence may have. tie_word_embeddings: whether tokens go out by the matrix
    that they come in by. eos_token_ids: the tokens that end an answer.

    Raises:
        ValueError: for heads that cannot share KV heads evenly, or an odd head_dim.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"{self.num_attention_heads} attention heads cannot share {self.num_key_value_heads} KV heads evenly"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}, it must be even: rotary positions turn dimensions in pairs")


class Llama:
    """A Llama-family model: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

    Args:
        config: the model's shape.
        weights: tensors under the hub's names, each of the shape that `weight_shapes(config)` gives.

    Source: vLLM 0.5.4, `vllm/model_executor/models/llama.py`, `LlamaForCausalLM`.
    """

    def __init__(self, config: LlamaConfig, weights: Mapping[str, Tensor]) -> None:
        self.config = config
        self._embedding = weights["model.embed_tokens.weight"]
        self._layers = [_Layer(config, index, weights) for index in range(config.num_hidden_layers)]
        lm_head = self._embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self._lm_head = Linear(_behind_norm(lm_head, weights["model.norm.weight"]))
        self._norm_floor = _norm_floor(config, self.device)
        self._inverse_frequencies = _inverse_frequencies(config).to(self.device)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights, of the activations and of the cache."""
        return self._embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights lie and steps are computed."""
        return self._embedding.device

    @torch.inference_mode()
    def forward(self, step: StepInput, cache: KVCache, decode: DecodeAttention = decode_attention) -> Tensor:
        """Compute one step: write the new tokens' keys and values, and predict what comes next.

        `decode` is the attention of one new token a sequence.

        Returns:
            [num_seqs, vocab_size], float32: the logits behind each sequence's last token.
        """
        hidden = self._embedding[step.token_ids]
        angles = step.positions[:, None, None].float() * self._inverse_frequencies  # the same for every head
        rotation = torch.polar(torch.ones_like(angles), angles)
        *others, last = self._layers
        for layer in others:
            hidden = layer.forward(hidden, rotation, step, cache, decode)
        hidden = last.forward(hidden, rotation, step, cache, decode, only_last_tokens=not step.attention.is_decode)
        num_seqs = len(step.attention.query_lens)
        return self._lm_head(_normalised(hidden, self._norm_floor))[:num_seqs].float()


class _Layer:
    """One decoder layer, in as few operations as it can be.

    Query, key and value projection are stacked. The weight of a norm is multiplied into the projection behind it.
    Two dimensions of a query or key head that turn together, i and i + head_dim / 2, are put side by side, as one
    complex number; queries and keys are reordered alike, so their products are the same.
    """

    def __init__(self, config: LlamaConfig, index: int, weights: Mapping[str, Tensor]) -> None:
        prefix = f"model.layers.{index}."
        query, key, value, gate, up = (weights[f"{prefix}{name}_proj.weight"] for name in _STACKED)
        query, key = (_pairs_side_by_side(weight, config.head_dim) for weight in (query, key))
        attention_norm, mlp_norm = (weights[f"{prefix}{name}_layernorm.weight"] for name in _NORMS)
        self._qkv_proj = Linear(_behind_norm(torch.cat([query, key, value]), attention_norm))
        self._gate_proj = Linear(_behind_norm(gate, mlp_norm), silu=True)
        self._up_proj = Linear(_behind_norm(up, mlp_norm))
        self._o_proj = Linear(weights[f"{prefix}self_attn.o_proj.weight"])
        self._down_proj = Linear(weights[f"{prefix}mlp.down_proj.weight"])
        self._norm_floor = _norm_floor(config, gate.device)
        self._num_heads, self._num_kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._head_dim = config.head_dim
        self._index = index

    def forward(
        self,
        hidden: Tensor,
        rotation: Tensor,
        step: StepInput,
        cache: KVCache,
        decode: DecodeAttention,
        *,
        only_last_tokens: bool = False,
    ) -> Tensor:
        """[num_tokens, hidden_size] to the same.

        Args:
            hidden: padded as the step is.
            rotation: [num_tokens, 1, head_dim / 2], complex.
            step: what is computed.
            cache: where its keys and values go, and what it attends to.
            decode: the attention of one new token a sequence.
            only_last_tokens: give back the last token of each sequence, [padded_rows(num_seqs), hidden_size]; all
                that is needed of the others are their keys and values.
        """
        query = self._write(_normalised(hidden, self._norm_floor), rotation, step, cache)
        metadata = step.attention
        if only_last_tokens:
            metadata = step.last_attention
            hidden, query = hidden[step.last_tokens], query[step.last_tokens[: len(metadata.query_lens)]]
        attention = decode if metadata.is_decode else paged_prefill_attention
        attended = attention(query, cache.key_cache(self._index), cache.value_cache(self._index), metadata).flatten(1)
        if len(attended) < len(hidden):
            attended = functional.pad(attended, (0, 0, 0, len(hidden) - len(attended)))
        hidden = self._o_proj.plus(attended, hidden)
        normalised = _normalised(hidden, self._norm_floor)
        return self._down_proj.plus(self._up_proj.times(normalised, self._gate_proj(normalised)), hidden)

    def _write(self, hidden: Tensor, rotation: Tensor, step: StepInput, cache: KVCache) -> Tensor:
        """Put the new tokens' keys and values into the cache; their queries, [step.num_tokens, num_heads, head_dim]."""
        heads, turning = self._num_heads, self._num_heads + self._num_kv_heads
        projected = self._qkv_proj(hidden).view(-1, turning + self._num_kv_heads, self._head_dim)
        query, key = _rotated(projected[:, :heads], rotation), _rotated(projected[:, heads:turning], rotation)
        new = step.num_tokens
        cache.write(self._index, key[:new], projected[:new, turning:], step.slots)
        return query[:new]


_STACKED = ("self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate", "mlp.up")
_NORMS = ("input", "post_attention")


def weight_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor that a model of this shape has, under the hub's names."""
    query_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    hidden, intermediate = config.hidden_size, config.intermediate_size
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (query_width, hidden),
        "self_attn.k_proj": (kv_width, hidden),
        "self_attn.v_proj": (kv_width, hidden),
        "self_attn.o_proj": (hidden, query_width),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (intermediate, hidden),
        "mlp.up_proj": (intermediate, hidden),
        "mlp.down_proj": (hidden, intermediate),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for index in range(config.num_hidden_layers):
        shapes |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes


def _inverse_frequencies(config: LlamaConfig) -> Tensor:
    """How far each pair of a head's dimensions turns from one position to the next, in radians: [head_dim / 2]."""
    exponents = torch.arange(0, config.head_dim, 2).float() / config.head_dim
    return 1.0 / config.rope_theta**exponents


def _pairs_side_by_side(weight: Tensor, head_dim: int) -> Tensor:
    """A projection's rows in another order: of each head, 0, half, 1, half + 1, ... with half = head_dim / 2."""
    heads = weight.view(-1, 2, head_dim // 2, weight.shape[1])
    return heads.transpose(1, 2).reshape(weight.shape)


def _rotated(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotary positions: [num_tokens, num_heads, head_dim], each pair of dimensions turned by its angle."""
    wide = x if x.dtype == torch.float32 else x.float()
    turned = torch.view_as_complex(wide.view(*x.shape[:2], -1, 2)) * rotation
    rotated: Tensor = torch.view_as_real(turned).view(x.shape).to(x.dtype)
    return rotated


def _behind_norm(weight: Tensor, norm_weight: Tensor) -> Tensor:
    """A projection that takes what `_normalised` gives, and does the rest of the norm in front of it."""
    return weight * (norm_weight * math.sqrt(weight.shape[1]))


def _normalised(x: Tensor, floor: Tensor) -> Tensor:
    """RMSNorm but for its weight and a factor of sqrt(hidden_size), in float32: x / sqrt(sum(x^2) + floor^2)."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    normalised: Tensor = (x / torch.hypot(norm, floor)).to(x.dtype)
    return normalised


def _norm_floor(config: LlamaConfig, device: torch.device) -> Tensor:
    """What keeps a norm from dividing by 0: rms_norm_eps, as it counts in a row that is not divided by its size."""
    return torch.tensor((config.rms_norm_eps * config.hidden_size) ** 0.5, device=device)
