"""Text to tokens as transformers does it, and back without a broken character."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer as RawTokenizer
from tokenizers.processors import TemplateProcessing

from refimpl.serving.tokenizer import IncrementalDetokenizer, Tokenizer
from refimpl.serving.weights import load_model


def test_tricky_texts_become_the_tokens_of_transformers(recorded):
    """Digits, runs of spaces, newlines, code, accents, CJK, emoji, special tokens, control characters."""
    llm, recording = recorded
    assert len(recording["texts"]) >= 12
    for case in recording["texts"]:
        assert llm.get_tokenizer().encode(case["text"]) == case["token_ids"], case["text"]


def test_chat_template_becomes_the_tokens_of_transformers(recorded):
    llm, recording = recorded
    for case in recording["chats"]:
        assert llm.get_tokenizer().apply_chat_template(case["messages"]) == case["token_ids"], case["messages"]


def test_the_system_message_of_the_template_can_be_left_out(recorded):
    tokenizer = recorded[0].get_tokenizer()
    user = {"role": "user", "content": "Hi"}
    bare = tokenizer.apply_chat_template([user], default_system_prompt=False)
    assert bare == tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    system = {"role": "system", "content": "Be brief."}
    own = tokenizer.apply_chat_template([system, user], default_system_prompt=False)
    assert own == tokenizer.apply_chat_template([system, user])


@pytest.mark.parametrize(
    "template",
    [
        "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}",
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}({{ messages|length }}){% endif %}"
        "{{ messages[-1]['content'] }}",
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ bos_token }}x",
    ],
)
def test_a_template_without_a_system_message_of_its_own_stays_as_it_is(tiny, template):
    tokenizer = with_template(tiny.get_tokenizer(), template)
    user = [{"role": "user", "content": "Hi"}]
    expected = tokenizer.apply_chat_template(user)
    assert expected[0] == tokenizer.token_id("<|endoftext|>")
    assert tokenizer.apply_chat_template(user, default_system_prompt=False) == expected


def test_the_beginning_of_sequence_token_stays_when_the_system_message_goes(tiny):
    template = (
        "{{ bos_token }}{% if messages[0]['role'] != 'system' %}Be kind.{% endif %}"
        "{% for m in messages %}[{{ m['content'] }}]{% endfor %}{% if add_generation_prompt %}!{% endif %}"
    )
    tokenizer = with_template(tiny.get_tokenizer(), template)
    user = [{"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(user) == tokenizer.encode("<|endoftext|>Be kind.[Hi]!")
    assert tokenizer.apply_chat_template(user, default_system_prompt=False) == tokenizer.encode("<|endoftext|>[Hi]!")


def test_special_tokens_are_read_as_one_and_left_out_of_the_text(recorded):
    tokenizer = recorded[0].get_tokenizer()
    token_ids = tokenizer.encode("<|im_start|>user<|im_end|>")
    assert token_ids[0] == tokenizer.token_id("<|im_start|>")
    assert token_ids[-1] == tokenizer.token_id("<|im_end|>")
    assert tokenizer.decode(token_ids) == "user"


def test_what_goes_before_every_text_does_not_go_before_a_conversation(tiny):
    """There the template writes it."""
    raw = RawTokenizer.from_str(tiny.get_tokenizer()._raw.to_str())
    raw.post_processor = TemplateProcessing("<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    tokenizer = Tokenizer(raw, "{{ messages[0]['content'] }}")
    core = tiny.get_tokenizer().encode("core")
    assert tokenizer.encode("core") == [0, *core]
    assert tokenizer.apply_chat_template([{"role": "user", "content": "core"}]) == core


def test_the_template_is_found_where_folders_keep_it(tiny, tiny_folder, tmp_path):
    """A file of its own before a list of named ones before a text; special tokens as texts or as objects."""
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    settings = {
        "bos_token": {"content": "<|im_start|>"},
        "chat_template": [{"name": "tools", "template": "no"}, {"name": "default", "template": "{{ bos_token }}core"}],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    core = tiny.get_tokenizer().encode("core")
    assert load_model(folder).tokenizer.apply_chat_template([]) == [1, *core]
    (folder / "chat_template.jinja").write_text("{{ bos_token }}{{ bos_token }}core")
    assert load_model(folder).tokenizer.apply_chat_template([]) == [1, 1, *core]
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(ValueError, match="has no chat template"):
        load_model(folder).tokenizer.apply_chat_template([])


def with_template(tokenizer: Tokenizer, template: str | None) -> Tokenizer:
    return Tokenizer(tokenizer._raw, template, {"bos_token": "<|endoftext|>"})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "has no chat template.*--raw"),
        ("{{ raise_exception('roles must alternate') }}", "failed: roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "failed: access to attribute '__class__' of 'str' object is unsafe"),
        ("{% if %}", "failed"),
    ],
)
def test_a_bad_chat_template_is_one_sentence(tiny, template, message):
    """Also one that reaches for the interpreter: templates come with the model and are not trusted."""
    with pytest.raises(ValueError, match=message):
        with_template(tiny.get_tokenizer(), template).apply_chat_template([{"role": "user", "content": "Hi"}])


def test_pieces_join_to_the_decoding_of_the_whole(recorded):
    """For texts, and for random tokens, most of which are no valid characters."""
    llm, recording = recorded
    tokenizer, draw = llm.get_tokenizer(), random.Random(0)
    cases = [case["token_ids"] for case in recording["texts"]]
    cases += [[draw.randrange(3, 320) for _ in range(60)] for _ in range(40)]
    for token_ids in cases:
        stream = IncrementalDetokenizer(tokenizer)
        pieces = [stream.add(token_id) for token_id in token_ids] + [stream.finish()]
        assert "".join(pieces) == tokenizer.decode(token_ids)


def test_a_character_appears_only_when_it_is_whole(tiny):
    token_ids = tiny.get_tokenizer().encode("a👍é")
    assert len(token_ids) == 7
    stream = IncrementalDetokenizer(tiny.get_tokenizer())
    assert [stream.add(token_id) for token_id in token_ids] == ["a", "", "", "", "👍", "", "é"]
    assert stream.finish() == ""


def test_an_unfinished_character_comes_at_the_end(tiny):
    stream = IncrementalDetokenizer(tiny.get_tokenizer())
    assert [stream.add(token_id) for token_id in tiny.get_tokenizer().encode("👍")[:2]] == ["", ""]
    assert stream.finish() == "\ufffd"
