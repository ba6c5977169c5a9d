"""`python -m tests.e2e.model FOLDER`: a tiny model's configuration and tokenizer, made here; its weights are random.

It runs in vLLM's environment, which has the library of tokenizers. Every id of the vocabulary is a token with text, so
that a stream brings something with each.
"""

import json
import sys
from pathlib import Path
from typing import Any

VOCABULARY = 2048
LAYERS, HIDDEN, KV_HEADS, HEAD_SIZE = 4, 256, 2, 64
MODEL_LENGTH = 8192
_SPECIAL = ("<|end|>", "<|turn|>")
# Prompts are English words: so is what the tokenizer learns from.
_TEXTS = Path(__file__).resolve().parents[2] / "docs"
_TEMPLATE = (
    "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def configuration() -> dict[str, Any]:
    """The shape of the model, as `config.json` has it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": 3 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HIDDEN // HEAD_SIZE,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "max_position_embeddings": MODEL_LENGTH,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "bfloat16",
    }


def write_model(folder: Path) -> None:
    """Writes configuration and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(folder / "tokenizer.json")
    documents = {
        "config.json": configuration(),
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 0},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": _SPECIAL[0],
            "eos_token": _SPECIAL[0],
            "pad_token": _SPECIAL[0],
            "model_max_length": MODEL_LENGTH,
            "chat_template": _TEMPLATE,
            "clean_up_tokenization_spaces": False,
        },
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=1), encoding="utf-8")


def _write_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (each.read_text(encoding="utf-8") for each in sorted(_TEXTS.glob("*.md")))
    made.train_from_iterator(texts, trainer)
    size = made.get_vocab_size()
    if size != VOCABULARY:
        raise SystemExit(f"the tokenizer has {size} tokens instead of {VOCABULARY}")
    made.save(str(path))


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
