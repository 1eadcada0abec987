"""A model folder for tests without an engine: a tokenizer of one token per word, and a configuration."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

MAX_LEN = 8_192


def word_model(folder: Path) -> Path:
    """The folder, with a tokenizer for which each word is a token, and the configuration of a small Llama."""
    folder.mkdir()
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 128,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": MAX_LEN, "vocab_size": 10,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder
