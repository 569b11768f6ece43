"""The forward pass of a Llama-family model whose keys and values live in a paged cache.

One call computes one step: the prompts of some sequences, or one token of each. New keys and values go to the slots
that the step names, and attention reads them back through block tables alone. The model keeps no state between steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from refimpl.device.attention import paged_attention, paged_prefill_attention
from refimpl.device.kv_cache import KVCache
from refimpl.serving.model_runner import StepInput


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The shape of a model, under the hub's names. `eos_token_ids`: the tokens that end an answer."""

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
        self._norm = weights["model.norm.weight"]
        self._lm_head = self._embedding if config.tie_word_embeddings else weights["lm_head.weight"]
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
    def forward(self, step: StepInput, cache: KVCache) -> Tensor:
        """Compute one step: write the new tokens' keys and values, and predict what comes next.

        Returns:
            [num_seqs, vocab_size], float32: the logits behind each sequence's last token.
        """
        hidden = self._embedding[step.token_ids]
        angles = step.positions[:, None].float() * self._inverse_frequencies
        rotation = torch.cat((angles, angles), dim=-1)[:, None]  # the same for every head
        cos, sin = rotation.cos().to(self.dtype), rotation.sin().to(self.dtype)
        for layer in self._layers:
            hidden = layer.forward(hidden, cos, sin, step, cache)
        last_tokens = torch.tensor(step.query_lens).cumsum(0) - 1
        return _linear(_rms_norm(hidden[last_tokens], self._norm, self.config.rms_norm_eps), self._lm_head).float()


class _Layer:
    """One decoder layer. The projections that read the same input are stacked, so that each is one product."""

    def __init__(self, config: LlamaConfig, index: int, weights: Mapping[str, Tensor]) -> None:
        prefix = f"model.layers.{index}."
        stacked = [torch.cat([weights[f"{prefix}{name}.weight"] for name in names]) for names in _STACKED]
        self._qkv_proj, self._gate_up_proj = stacked
        self._o_proj = weights[f"{prefix}self_attn.o_proj.weight"]
        self._down_proj = weights[f"{prefix}mlp.down_proj.weight"]
        self._input_norm = weights[f"{prefix}input_layernorm.weight"]
        self._post_attention_norm = weights[f"{prefix}post_attention_layernorm.weight"]
        self._config = config
        self._index = index

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, step: StepInput, cache: KVCache) -> Tensor:
        """[num_tokens, hidden_size] to the same."""
        eps = self._config.rms_norm_eps
        hidden = hidden + self._attention(_rms_norm(hidden, self._input_norm, eps), cos, sin, step, cache)
        gate, up = _linear(_rms_norm(hidden, self._post_attention_norm, eps), self._gate_up_proj).chunk(2, dim=-1)
        return hidden + _linear(functional.silu(gate) * up, self._down_proj)

    def _attention(self, hidden: Tensor, cos: Tensor, sin: Tensor, step: StepInput, cache: KVCache) -> Tensor:
        config = self._config
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        projected = _linear(hidden, self._qkv_proj).view(len(hidden), heads + 2 * kv_heads, config.head_dim)
        query = _rotate(projected[:, :heads], cos, sin)
        key = _rotate(projected[:, heads : heads + kv_heads], cos, sin)
        cache.write(self._index, key, projected[:, heads + kv_heads :], step.slot_mapping)
        pools = cache.key_cache(self._index), cache.value_cache(self._index)
        if max(step.query_lens) == 1:
            output = paged_attention(query, *pools, step.block_tables, step.context_lens)
        else:
            output = paged_prefill_attention(query, *pools, step.block_tables, step.query_lens, step.context_lens)
        return _linear(output.flatten(1), self._o_proj)


_STACKED = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("mlp.gate_proj", "mlp.up_proj"),
)


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


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions: dimension i of a head turns together with dimension i + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row to a mean square of 1, in float32, then by `weight`."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)).to(x.dtype)


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    return functional.linear(x, weight)
