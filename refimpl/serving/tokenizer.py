"""Text to token ids and back, with the chat template that came with the model.

Wraps a `tokenizers.Tokenizer`, which the reader of a model's files has made. Text that grows a token at a time is
decoded so that the pieces, joined, always equal the decoding of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as RawTokenizer

_REPLACEMENT = "\ufffd"  # what an unfinished character decodes to


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
        """The token ids of a text; with `add_special_tokens` also what the model wants in front of every text.

        Raises:
            ValueError: for a text with half a character, as bytes on the command line that are not UTF-8 become.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"character {error.start} of the text is {text[error.start]!r}, no character of its own: write the "
                f"text in UTF-8"
            ) from error
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

    def add(self, *token_ids: int) -> str:
        """The text that these tokens make certain, often empty in the middle of a character."""
        self._token_ids += token_ids
        piece = self._pending()
        if piece.endswith(_REPLACEMENT):
            return ""
        self._window_start, self._emitted_end = self._emitted_end, len(self._token_ids)
        return piece

    def fork(self) -> IncrementalDetokenizer:
        """A copy that goes its own way from here."""
        other = IncrementalDetokenizer(self._tokenizer)
        other._token_ids = self._token_ids.copy()
        other._window_start, other._emitted_end = self._window_start, self._emitted_end
        return other

    def finish(self) -> str:
        """What is still held back when the sequence has ended, unfinished characters included."""
        piece = self._pending()
        self._window_start = self._emitted_end = len(self._token_ids)
        return piece

    def _pending(self) -> str:
        before = self._tokenizer.decode(self._token_ids[self._window_start : self._emitted_end])
        return self._tokenizer.decode(self._token_ids[self._window_start :])[len(before) :]


def _raise_template_error(message: str) -> None:
    raise TemplateError(message)
