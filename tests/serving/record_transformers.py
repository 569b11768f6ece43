"""Record what transformers answers, for the tests to compare with: token ids of greedy decoding, and tokenizations.

Not part of the test run: it needs an environment of its own, with the packages that `VERSIONS` names. Writes the tiny
random model, tiny_llama.json and, where the GGUF file is given, smollm2.json and smollm2_long.json; the same bytes at
every run on one machine.

    python -m venv peer && peer/bin/pip install torch==2.13.0 transformers==5.24.0 tokenizers==0.23.3 \
        gguf==0.19.0 accelerate==1.15.0
    peer/bin/python tests/serving/record_transformers.py tests/data/serving [SmolLM2-135M-Instruct.Q4_1.gguf]
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
from pathlib import Path

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

VERSIONS = ("torch", "transformers", "tokenizers", "gguf")
PROMPT_LENGTHS = (1, 2, 7, 15, 16, 17, 31, 32, 33, 70)  # around one and two blocks of 16
TEXT = (
    "In the year 1962 the Atlas computer at Manchester kept its pages on a drum and in 16384 words of core. "
    "A program saw one store, and the machine moved each page to where there was room: nobody had to plan it. "
    "Sixty years later the same idea keeps the keys and values of a language model in blocks of sixteen tokens."
)
TRICKY_TEXTS = (
    "12345 678",
    "a  5 and   7\n 9",
    "x = 3.14159; y=-2",
    "   leading and trailing   ",
    "line one\n\n\n  line two\r\n\ttabbed",
    "def f(x):\n    return {'a': [x[i] for i in range(10)]}\n",
    "naïve café — “quotes” … €5",
    "日本語とカタカナ、漢字。中文測試 한국어",
    "👩‍👩‍👧 family, 🇫🇷 flag, ok 👍🏽",
    "I'll they've we'd it's DON'T",
    "<|im_start|>user\nhi<|im_end|>\n",
    "2²³ ½ Ⅷ １２ x_1",
    "",
    "\x00\x7f\u200b\ufeffa\u0301",
)
CONVERSATIONS = (
    [{"role": "user", "content": "What is the capital of France, and why is it famous?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count to 3."}],
    [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "<|im_end|> é 10"},
    ],
)
LONG_CONVERSATION = [
    {
        "role": "user",
        "content": "Tell the story of a lighthouse keeper who finds a map in a bottle. Take your time: describe the "
        "sea, the people whom she meets and what they say, and let every chapter end with a surprise.",
    }
]
CHAT_TEMPLATE = """\
{% for message in messages %}
    {% if loop.first and message['role'] != 'system' %}
{{ '<|im_start|>system\nBe kind.<|im_end|>' }}
    {% endif %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{%- endif %}
"""


def make_tiny_llama(folder: Path) -> None:
    """A random model with grouped-query attention and an output matrix of its own, in the hub's format."""
    raw = tokenizers.Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator([TEXT], trainer)
    folder.mkdir(parents=True, exist_ok=True)
    raw.save(str(folder / "tokenizer.json"))
    settings = {
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=raw.get_vocab_size(),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.25,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        bos_token_id=0,
        eos_token_id=2,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    for name, parameter in model.named_parameters():
        if "norm" in name:  # fresh ones are all 1, which would hide a norm that is left out
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def record(model: LlamaForCausalLM, tokenizer: object, max_tokens: int) -> dict[str, object]:
    """Greedy answers, without a stop at the end token, and tokenizations."""
    long_prompt = tokenizer(TEXT * 3)["input_ids"]
    answers = []
    for length in PROMPT_LENGTHS:
        prompt = long_prompt[length : 2 * length]
        output = model.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=max_tokens, eos_token_id=None, pad_token_id=0
        )
        answers.append({"prompt_token_ids": prompt, "output_token_ids": output[0, length:].tolist()})
    chats = [
        {
            "messages": messages,
            "token_ids": tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"],
        }
        for messages in CONVERSATIONS
    ]
    texts = [{"text": text, "token_ids": tokenizer(text)["input_ids"]} for text in TRICKY_TEXTS]
    return {
        "recorded_with": {name: importlib.metadata.version(name) for name in VERSIONS},
        "answers": answers,
        "texts": texts,
        "chats": chats,
    }


def record_long(model: LlamaForCausalLM, tokenizer: object, max_tokens: int) -> dict[str, object]:
    """One long greedy answer, and by how much each token's logit exceeds the next best: where that is little, a tie."""
    prompt = tokenizer.apply_chat_template(LONG_CONVERSATION, add_generation_prompt=True, return_tensors="pt")[
        "input_ids"
    ]
    output = model.generate(
        prompt,
        do_sample=False,
        max_new_tokens=max_tokens,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    best = [scores[0].topk(2).values for scores in output.scores]
    return {
        "recorded_with": {name: importlib.metadata.version(name) for name in VERSIONS},
        "prompt_token_ids": prompt[0].tolist(),
        "output_token_ids": output.sequences[0, prompt.shape[1] :].tolist(),
        "gaps": [float(f"{float(first - second):.3g}") for first, second in best],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("gguf", type=Path, nargs="?")
    args = parser.parse_args()
    tiny = args.data / "tiny_llama"
    make_tiny_llama(tiny)
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    write(args.data / "tiny_llama.json", record(model, AutoTokenizer.from_pretrained(tiny), max_tokens=40))
    if args.gguf:
        source = {"pretrained_model_name_or_path": args.gguf.parent, "gguf_file": args.gguf.name}
        tokenizer = AutoTokenizer.from_pretrained(**source)
        # The file names its pre-tokenizer "smollm": every digit by itself, then the byte-level split. transformers'
        # reader leaves the digits out, which shows where several spaces come before one.
        backend = tokenizer.backend_tokenizer
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
        )
        model = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
        write(args.data / "smollm2.json", record(model, tokenizer, max_tokens=24))
        write(args.data / "smollm2_long.json", record_long(model, tokenizer, max_tokens=1000))


def write(path: Path, recording: dict[str, object]) -> None:
    """One JSON file, a line a token list."""
    text = json.dumps(recording, ensure_ascii=True, separators=(",", ":"))
    for mark in ('{"prompt_token_ids"', '{"text"', '{"messages"', '"answers"', '"texts"', '"chats"', '"gaps"'):
        text = text.replace(mark, "\n" + mark)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
