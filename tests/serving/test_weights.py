"""What can be loaded, and a sentence for each thing that cannot."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file

from refimpl import LLM, SamplingParams
from refimpl.serving.weights import load_model

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPT = {"prompt_token_ids": list(range(100, 120))}


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model, to be spoiled."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


def tokens_of(llm: LLM) -> list[int]:
    return llm.generate(PROMPT, GREEDY)[0].outputs[0].token_ids


def load(model: Path) -> LLM:
    return LLM(model, num_gpu_blocks_override=64)


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in config.items() if value != "left out"}))


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors")


def write_gguf(
    folder: Path, path: Path, tokenizer: tuple[str, str] = ("gpt2", "gpt-2"), add_bos: bool = False, **changes: object
) -> Path:
    """The tiny model as a GGUF file: queries and keys reordered as llama.cpp's converter does it."""
    config = json.loads((folder / "config.json").read_text())
    raw = json.loads((folder / "tokenizer.json").read_text())
    fields = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.freq_base": config["rope_parameters"]["rope_theta"],
        "rope.dimension_count": config["head_dim"],
    } | changes
    writer = gguf.GGUFWriter(path, str(fields.pop("architecture", "llama")))
    for name, value in fields.items():
        kind = {int: "uint32", float: "float32", str: "string"}.get(type(value))
        if kind:
            getattr(writer, f"add_{kind}")(f"llama.{name}", value)
    vocabulary = sorted(raw["model"]["vocab"], key=raw["model"]["vocab"].get)
    special = {token["content"] for token in raw["added_tokens"]}
    writer.add_tokenizer_model(tokenizer[0])
    writer.add_tokenizer_pre(tokenizer[1])
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if token in special else 1 for token in vocabulary])
    writer.add_token_merges([" ".join(merge) for merge in raw["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(add_bos)
    for name, tensor in load_file(folder / "model.safetensors").items():
        writer.add_tensor(gguf_name(name), as_in_gguf(name, tensor.numpy(), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str:
    parts = name.split(".")
    short = {
        "embed_tokens": "token_embd",
        "lm_head": "output",
        "norm": "output_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "o_proj": "attn_output",
    }
    last = parts[-2]
    own = short.get(last) or ("attn_" if "self_attn" in parts else "ffn_") + last.removesuffix("_proj")
    return f"blk.{parts[2]}.{own}.weight" if "layers" in parts else f"{own}.weight"


def as_in_gguf(name: str, tensor: numpy.ndarray, config: dict) -> numpy.ndarray:
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(name.split(".")[-2])
    if heads is None:
        return tensor
    rows = numpy.arange(tensor.shape[0]).reshape(heads, 2, -1)
    return tensor[numpy.stack([rows[:, 0], rows[:, 1]], axis=2).reshape(-1)]


def test_the_same_model_as_gguf_gives_the_same_tokens(tiny, tiny_folder, tmp_path):
    loaded = load(write_gguf(tiny_folder, tmp_path / "tiny.gguf"))
    assert tokens_of(loaded) == tokens_of(tiny)
    text = "It's 1962,   and  ...\n\ttwo <|im_end|> pages"
    assert loaded.get_tokenizer().encode(text) == tiny.get_tokenizer().encode(text)


def test_a_gguf_may_want_a_token_in_front_of_every_text(tiny, tiny_folder, tmp_path):
    tokenizer = load_model(write_gguf(tiny_folder, tmp_path / "tiny.gguf", add_bos=True)).tokenizer
    assert tokenizer.encode("core") == [0, *tiny.get_tokenizer().encode("core")]
    assert tokenizer.decode(tokenizer.encode("core")) == "core"


def test_shards_give_the_same_tokens(tiny, folder):
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for shard, members in shards.items():
        save_file({name: weights[name] for name in members}, folder / shard)
    weight_map = {name: shard for shard, members in shards.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model.safetensors").unlink()
    assert tokens_of(load(folder)) == tokens_of(tiny)
    (folder / "b.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="has no b.safetensors"):
        load_model(folder)


def test_a_config_of_older_transformers_means_the_same(tiny, folder):
    edit_config(folder, rope_parameters="left out", rope_theta=10000.0, rope_scaling=None, head_dim="left out")
    assert tokens_of(load(folder)) == tokens_of(tiny)


def test_tied_embeddings_need_no_output_matrix(folder):
    edit_config(folder, tie_word_embeddings=True)
    kept = load_model(folder).network
    edit_weights(folder, lambda weights: weights.pop("lm_head.weight"))
    assert kept.config == load_model(folder).network.config
    assert tokens_of(load(folder))


def test_end_tokens_come_from_the_generation_config_first(folder):
    assert load_model(folder).network.config.eos_token_ids == (2,)
    edit_config(folder, eos_token_id=[2, 5])
    assert load_model(folder).network.config.eos_token_ids == (2, 5)
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    assert load_model(folder).network.config.eos_token_ids == (7,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, r"'gpt2' model \(GPT2LMHeadModel\), only"),
        ({"model_type": "left out", "architectures": "left out"}, r"a None model \(\?\)"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "rope scaling is 'llama3'"),
        ({"rope_parameters": "left out", "rope_scaling": {"type": "linear"}}, "rope scaling is 'linear'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', supported is 'silu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is"),
        ({"num_hidden_layers": "left out"}, "config.json has no 'num_hidden_layers'"),
        ({"num_key_value_heads": 4}, "6 attention heads cannot share 4 KV heads"),
        ({"num_hidden_layers": 4}, "lacks 9 of 39 tensors, the first is model.layers.3.input_layernorm.weight"),
        ({"num_hidden_layers": 10**12}, "has 30 tensors, too few for the 1000000000000 layers"),
        ({"num_attention_heads": 48, "num_key_value_heads": 16, "head_dim": 1}, "head_dim is 1, it must be even"),
        ({"tie_word_embeddings": "false"}, "config.json: tie_word_embeddings is 'false', it must be true or false"),
        ({"eos_token_id": "2"}, "config.json: eos_token_id is '2', it must be an integer of 0 or more"),
        ({"eos_token_id": [2, None]}, r"config.json: eos_token_id is \[2, None\], it must be an integer of 0 or more"),
        ({"rope_parameters": "default"}, "config.json: the rope settings are 'default', they must be an object"),
        ({"model_type": "gpt2", "architectures": 3}, r"a 'gpt2' model \(\?\)"),
        ({"num_hidden_layers": 2}, "has 9 tensors that a Llama has no place for, the first is model.layers.2"),
        ({"intermediate_size": 95}, r"mlp.gate_proj.weight is \[96, 48\], .* asks for \[95, 48\]"),
    ],
)
def test_a_config_that_would_run_wrongly_is_refused(folder, changes, message):
    edit_config(folder, **changes)
    with pytest.raises(ValueError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    "name",
    [
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
    ],
)
@pytest.mark.parametrize("value", [0, -1, "2", 6.0, True, [6], float("nan")])
def test_a_count_that_is_none_is_refused(folder, name, value):
    edit_config(folder, **{name: value})
    sentence = f"{folder}/config.json: {name} is {value!r}, it must be an integer of 1 or more"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        load_model(folder)


@pytest.mark.parametrize("value", [0, -1.0, "1", True, float("nan"), float("inf"), 10**400])
@pytest.mark.parametrize("name", ["rms_norm_eps", "rope_theta"])
def test_a_measure_that_is_none_is_refused(folder, name, value):
    edit_config(folder, **({name: value} if name == "rms_norm_eps" else {"rope_parameters": {name: value}}))
    with pytest.raises(ValueError, match=f"config.json: {name} is .*, it must be a finite number above 0"):
        load_model(folder)


def test_end_tokens_of_the_generation_config_are_checked(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, -1]}')
    with pytest.raises(ValueError, match=r"generation_config.json: eos_token_id is \[2, -1\], it must be an integer"):
        load_model(folder)


@pytest.mark.parametrize("weight_map", [None, ["a.safetensors"], {"lm_head.weight": 3}])
def test_an_index_that_names_no_files_is_refused(folder, weight_map):
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ValueError, match="index.json has no weight_map that names a file for each tensor"):
        load_model(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{folder} has no {name}"):
        load_model(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.98])
def test_a_truncated_file_is_named(folder, name, kept):
    path = folder / name
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(ValueError, match=str(path)):
        load_model(folder)


def test_a_missing_tensor_is_named(folder):
    edit_weights(folder, lambda weights: weights.pop("model.layers.1.self_attn.k_proj.weight"))
    with pytest.raises(ValueError, match="lacks 1 of 30 tensors, the first is model.layers.1.self_attn.k_proj.weight"):
        load_model(folder)


def test_a_truncated_gguf_is_refused_wherever_it_ends(tiny_folder, tmp_path):
    path = write_gguf(tiny_folder, tmp_path / "tiny.gguf")
    whole = path.read_bytes()
    for kept in [0, 3, 4, 20, 24, *range(100, len(whole), len(whole) // 40), len(whole) - 32]:
        path.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match=rf"tiny.gguf \({kept} bytes\) is no complete GGUF file"):
            load_model(path)


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    path = tmp_path / "notes.gguf"
    path.write_text("Dear diary, " * 100)
    with pytest.raises(ValueError, match="no complete GGUF file"):
        load_model(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gpt2"}, "holds a 'gpt2' model, only 'llama' runs here"),
        ({"rope.scaling.type": "yarn"}, r"rope scaling \(yarn\) is not supported"),
        ({"rope.dimension_count": 4}, "rotates 4 of 8 dimensions"),
        ({"block_count": None}, "has no field 'llama.block_count'"),
        ({"block_count": 4}, "lacks 9 of 39 tensors"),
        ({"feed_forward_length": 95}, r"mlp.gate_proj.weight is \[96, 48\]"),
        ({"attention.head_count": 0}, "tiny.gguf: llama.attention.head_count is 0, it must be an integer of 1 or more"),
        ({"attention.head_count_kv": 0}, "llama.attention.head_count_kv is 0"),
        ({"embedding_length": "48"}, "llama.embedding_length is '48', it must be an integer"),
        ({"rope.freq_base": float("nan")}, "llama.rope.freq_base is nan, it must be a finite number above 0"),
    ],
)
def test_a_gguf_that_would_run_wrongly_is_refused(tiny_folder, tmp_path, changes, message):
    path = write_gguf(tiny_folder, tmp_path / "tiny.gguf", **changes)
    with pytest.raises(ValueError, match=message):
        load_model(path)


@pytest.mark.parametrize("tokenizer", [("llama", "default"), ("gpt2", "qwen2")])
def test_a_gguf_with_another_kind_of_tokenizer_is_refused(tiny_folder, tmp_path, tokenizer):
    path = write_gguf(tiny_folder, tmp_path / "tiny.gguf", tokenizer)
    with pytest.raises(ValueError, match="'{}' with pre-tokenizer '{}', supported: 'gpt2' with".format(*tokenizer)):
        load_model(path)


def test_json_that_is_no_object_is_refused(folder):
    (folder / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="config.json is not a JSON object"):
        load_model(folder)


def test_a_model_that_is_nowhere_is_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no model 'llama-9000b': it is neither 'smollm2-135m', nor"):
        load_model("llama-9000b")
    monkeypatch.setenv("REFIMPL_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"Q4_1.gguf is not in {tmp_path}: .*python -m refimpl fetch-model"):
        load_model("smollm2-135m")


def test_an_unknown_dtype_is_refused(tiny_folder):
    with pytest.raises(ValueError, match="dtype is 'int8', it must be one of"):
        load_model(tiny_folder, dtype="int8")


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("tpu", "device is 'tpu', it must be 'cpu' or 'cuda'"),
        pytest.param(
            "cuda",
            "device is 'cuda', but torch .* finds no CUDA device: use device 'cpu'",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device"),
        ),
    ],
)
def test_a_device_that_is_not_there_is_refused(tiny_folder, device, message):
    with pytest.raises(ValueError, match=message):
        load_model(tiny_folder, device=device)
