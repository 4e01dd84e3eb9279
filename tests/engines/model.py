"""Writes a tiny random Llama with a tokenizer and a chat template: model.py DIR

Random weights of a wide spread: greedy output depends on every token of the prompt, so a decode that works with missing or
foreign KV says something else than one engine alone does. The tokenizer is trained on texts every Python brings along.
"""

import codecs
import json
import pathlib
import sys
import sysconfig

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 2048
SPECIAL = ["<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def corpus():
    """Docstrings and comments of the standard library: about a megabyte of mixed text."""
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))[:120]:
        with codecs.open(str(path), "r", "utf-8", errors="ignore") as file:
            yield file.read()


def tokenizer(out):
    made = Tokenizer(models.BPE(unk_token=None))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        ),
    )
    made.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<|bos|>",
                "eos_token": "<|eos|>",
                "pad_token": "<|eos|>",
                "model_max_length": 8192,
                "clean_up_tokenization_spaces": False,
                "chat_template": TEMPLATE,
            }
        )
    )


def weights(out):
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=8192,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
        initializer_range=0.35,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(out, safe_serialization=True)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    partial = folder.with_name(folder.name + ".part")
    partial.mkdir(parents=True, exist_ok=True)
    tokenizer(partial)
    weights(partial)
    partial.rename(folder)
