"""Text to token ids and back, with the chat template that came with the model.

Wraps a `tokenizers.Tokenizer`, read from a hub folder or rebuilt from the metadata of a GGUF file. Text that grows a
token at a time is decoded so that the pieces, joined, always equal the decoding of the whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as RawTokenizer

_REPLACEMENT = "\ufffd"  # what an unfinished character decodes to

_CONTROL, _USER_DEFINED = 3, 4  # GGUF token types that are matched as a whole in the text


class Tokenizer:
    """A model's tokenizer.

    Args:
        raw: the tokenizer itself.
        chat_template: Jinja source that writes a conversation as one text; None for a model without one.
        special_tokens: texts that the template may ask for, as "bos_token" and "eos_token".
    """

    def __init__(
        self,
        raw: RawTokenizer,
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        self._raw = raw
        self._chat_template = chat_template
        self._special_tokens = dict(special_tokens or {})

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text; with `add_special_tokens` also what the model wants in front of every text."""
        ids: list[int] = self._raw.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of some tokens, special ones left out."""
        return self._raw.decode(list(token_ids), skip_special_tokens=True)

    def token_id(self, token: str) -> int | None:
        """The id of one token, None when there is no such token."""
        return self._raw.token_to_id(token)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, str]], default_system_prompt: bool = True
    ) -> list[int]:
        """A conversation as token ids, up to where the model's answer begins.

        Args:
            messages: each with "role" ("system", "user" or "assistant") and "content".
            default_system_prompt: keep the system message that some templates add when there is none.

        Raises:
            ValueError: for a model without a chat template, or one whose template refuses the messages.
        """
        text = self._render(messages, add_generation_prompt=True)
        if not default_system_prompt and all(message["role"] != "system" for message in messages):
            text = self._without_system_message(text, messages)
        return self.encode(text, add_special_tokens=False)

    def _without_system_message(self, text: str, messages: Sequence[Mapping[str, str]]) -> str:
        """The text without what the template put before the first message, the beginning-of-sequence token aside.

        A conversation with an empty system message shows where that ends: there the message can be cut off exactly.
        """
        empty = {"role": "system", "content": ""}
        try:
            head = self._render([empty], add_generation_prompt=False)
            bare = self._render([empty, *messages], add_generation_prompt=True).removeprefix(head)
        except ValueError:  # a template without system messages adds none
            return text
        bos = self._special_tokens.get("bos_token", "")
        if not text.endswith(bare):
            return text
        return bos + bare if text.startswith(bos) and not bare.startswith(bos) else bare

    def _render(self, messages: Sequence[Mapping[str, str]], add_generation_prompt: bool) -> str:
        if self._chat_template is None:
            raise ValueError("this model has no chat template: give it the prompt as it is (--raw)")
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise_template_error
        try:
            return environment.from_string(self._chat_template).render(
                messages=messages, add_generation_prompt=add_generation_prompt, **self._special_tokens
            )
        except TemplateError as error:
            raise ValueError(f"the model's chat template failed: {error}") from error


class IncrementalDetokenizer:
    """The text of one growing sequence, a piece a token.

    A character may be spread over several tokens; its bytes are held back until it is whole.

    >>> from tokenizers import Tokenizer as Raw, models, decoders
    >>> raw = Raw(models.BPE({"Ã": 0, "¶": 1, "x": 2}, [])); raw.decoder = decoders.ByteLevel()
    >>> stream = IncrementalDetokenizer(Tokenizer(raw))
    >>> [stream.add(0), stream.add(1), stream.add(2)]
    ['', 'ö', 'x']
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._token_ids: list[int] = []
        self._window_start = 0  # the token that decoding begins with: spaces depend on the token before
        self._emitted_end = 0  # tokens before this one have been given out

    def add(self, token_id: int) -> str:
        """The text that this token makes certain, often empty in the middle of a character."""
        self._token_ids.append(token_id)
        piece = self._pending()
        if piece.endswith(_REPLACEMENT):
            return ""
        self._window_start, self._emitted_end = self._emitted_end, len(self._token_ids)
        return piece

    def finish(self) -> str:
        """What is still held back when the sequence has ended, unfinished characters included."""
        piece = self._pending()
        self._window_start = self._emitted_end = len(self._token_ids)
        return piece

    def _pending(self) -> str:
        before = self._tokenizer.decode(self._token_ids[self._window_start : self._emitted_end])
        return self._tokenizer.decode(self._token_ids[self._window_start :])[len(before) :]


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a folder in the hub's format: tokenizer.json, and its optional companions.

    Raises:
        FileNotFoundError: without a tokenizer.json.
        ValueError: for a file that cannot be read as what it should be.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no tokenizer.json: a model folder needs one beside config.json")
    try:
        raw = RawTokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more particular
        raise ValueError(f"{path} is not a complete tokenizer: {error}") from error
    settings = _read_json(folder / "tokenizer_config.json")
    template_path = folder / "chat_template.jinja"
    template = settings.get("chat_template")
    if template_path.is_file():
        template = template_path.read_text(encoding="utf-8")
    elif isinstance(template, list):  # several, by name
        template = next((entry["template"] for entry in template if entry["name"] == "default"), None)
    special_tokens = {name: settings[name] for name in ("bos_token", "eos_token") if settings.get(name)}
    texts = {name: token["content"] if isinstance(token, dict) else token for name, token in special_tokens.items()}
    return Tokenizer(raw, template, texts)


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file describes: byte-level BPE with the pre-tokenizer that the file names.

    Args:
        metadata: the file's "tokenizer.*" fields.

    Raises:
        ValueError: for a kind of tokenizer that is not byte-level BPE, or a pre-tokenizer that is not known here.
        KeyError: for a field that is missing.
    """
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


# What runs before the byte-level split, by the name that a GGUF file gives to the whole.
_PRE_TOKENIZERS: dict[str, list[pre_tokenizers.PreTokenizer]] = {
    "default": [],
    "gpt-2": [],
    "smollm": [pre_tokenizers.Digits(individual_digits=True)],
}


def _read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, an empty one when there is no such file."""
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    return content


def _raise_template_error(message: str) -> None:
    raise TemplateError(message)
