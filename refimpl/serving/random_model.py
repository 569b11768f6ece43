"""A small Llama with random weights, for when the real model's file is not there: all of a model but its knowledge.

It is made in memory, the same in every process. Its tokenizer knows the 256 bytes and the marks of a conversation, so
any text can be given to it, and what it answers means nothing.
"""

from __future__ import annotations

import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as RawTokenizer

from refimpl.serving.llama import LlamaConfig, weight_shapes
from refimpl.serving.tokenizer import Tokenizer

RANDOM_MODEL = "random-tiny"  # its name, where a model is named

_SPREAD = 0.25  # of the weights: so far apart that the likeliest token depends on everything before it
_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def random_model() -> tuple[LlamaConfig, dict[str, torch.Tensor], Tokenizer]:
    """Its shape, weights and tokenizer.

    >>> config, weights, tokenizer = random_model()
    >>> sum(tensor.numel() for tensor in weights.values()), len(tokenizer.encode("blocks"))
    (72672, 6)
    """
    tokenizer = _byte_tokenizer()
    config = LlamaConfig(
        vocab_size=256 + len(_MARKS),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_ids=(_MARKS.index("<|im_end|>"),),
    )
    generator = torch.Generator().manual_seed(0)
    weights = {
        name: torch.ones(shape) if len(shape) == 1 else _SPREAD * torch.randn(shape, generator=generator)
        for name, shape in weight_shapes(config).items()
    }
    return config, weights, tokenizer


def _byte_tokenizer() -> Tokenizer:
    """A token for each byte, behind the marks."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate((*_MARKS, *alphabet))}
    raw = RawTokenizer(models.BPE(vocabulary, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(mark, special=True) for mark in _MARKS])
    return Tokenizer(raw, _CHAT_TEMPLATE, {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"})
