"""A second Llama, as plain as can be: float64, one sequence, no cache, no batch, nothing shared with refimpl.

Reads the weights by itself. From a GGUF file it takes queries and keys in the order in which they are stored, where
the two dimensions that turn together are neighbours, and brings only its result into the hub's order.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import gguf
import torch
from safetensors.torch import load_file

_FROM_GGUF = {
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


@dataclass
class DenseLlama:
    weights: dict[str, torch.Tensor]
    layers: int
    heads: int
    kv_heads: int
    eps: float
    theta: float
    neighbours: bool  # whether dimensions 2i and 2i+1 turn together, rather than i and i + half

    @classmethod
    def from_folder(cls, folder: Path) -> DenseLlama:
        config = json.loads((folder / "config.json").read_text())
        return cls(
            {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()},
            config["num_hidden_layers"],
            config["num_attention_heads"],
            config["num_key_value_heads"],
            config["rms_norm_eps"],
            config["rope_parameters"]["rope_theta"],
            neighbours=False,
        )

    @classmethod
    def from_gguf(cls, path: Path) -> DenseLlama:
        reader = gguf.GGUFReader(path)
        weights = {}
        for tensor in reader.tensors:
            data = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type)).double()
            if tensor.name.startswith("blk."):
                _, layer, name, _ = tensor.name.split(".")
                weights[f"model.layers.{layer}.{_FROM_GGUF[name]}.weight"] = data
            else:
                weights[{"token_embd.weight": "model.embed_tokens.weight"}.get(tensor.name, "model.norm.weight")] = data

        def field(name: str):
            return reader.fields[f"llama.{name}"].contents()

        return cls(
            weights,
            field("block_count"),
            field("attention.head_count"),
            field("attention.head_count_kv"),
            field("attention.layer_norm_rms_epsilon"),
            field("rope.freq_base"),
            neighbours=True,
        )

    def forward(self, token_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(keys, values, logits): [layers, tokens, kv_heads, head_dim] twice, and [tokens, vocabulary]."""
        all_keys, all_values = [], []
        hidden = self.weights["model.embed_tokens.weight"][token_ids]
        causal = torch.ones(len(token_ids), len(token_ids)).tril().bool()
        for layer in range(self.layers):

            def weight(name: str, layer: int = layer) -> torch.Tensor:
                return self.weights[f"model.layers.{layer}.{name}.weight"]

            x = self.norm(hidden, weight("input_layernorm"))
            queries = self.turn(self.split(x @ weight("self_attn.q_proj").T, self.heads))
            keys = self.turn(self.split(x @ weight("self_attn.k_proj").T, self.kv_heads))
            values = self.split(x @ weight("self_attn.v_proj").T, self.kv_heads)
            outputs = []
            for head in range(self.heads):
                kv_head = head * self.kv_heads // self.heads
                scores = queries[:, head] @ keys[:, kv_head].T / math.sqrt(queries.shape[-1])
                outputs.append(scores.masked_fill(~causal, -math.inf).softmax(-1) @ values[:, kv_head])
            hidden = hidden + torch.cat(outputs, dim=-1) @ weight("self_attn.o_proj").T
            x = self.norm(hidden, weight("post_attention_layernorm"))
            gate = x @ weight("mlp.gate_proj").T
            hidden = (
                hidden + (gate / (1 + torch.exp(-gate)) * (x @ weight("mlp.up_proj").T)) @ weight("mlp.down_proj").T
            )
            all_keys.append(keys)
            all_values.append(values)
        output = self.weights.get("lm_head.weight", self.weights["model.embed_tokens.weight"])
        logits = self.norm(hidden, self.weights["model.norm.weight"]) @ output.T
        return torch.stack(all_keys), torch.stack(all_values), logits

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt((x**2).mean(-1, keepdim=True) + self.eps) * weight

    @staticmethod
    def split(x: torch.Tensor, heads: int) -> torch.Tensor:
        return x.reshape(len(x), heads, -1)

    def turn(self, x: torch.Tensor) -> torch.Tensor:
        """Rotary positions as complex numbers; the result in the hub's order of dimensions."""
        half = x.shape[-1] // 2
        real, imaginary = (x[..., 0::2], x[..., 1::2]) if self.neighbours else (x[..., :half], x[..., half:])
        frequencies = self.theta ** (-torch.arange(half).double() / half)
        angles = torch.outer(torch.arange(len(x)).double(), frequencies)[:, None]
        turned = torch.complex(real, imaginary) * torch.exp(1j * angles)
        return torch.cat([turned.real, turned.imag], dim=-1)
