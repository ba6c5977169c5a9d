"""What a model's config.json says about its memory: the KV cache of a token, and the weights.

Names of fields are those of the `transformers` library; what follows from them is how vLLM lays the cache out.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watchdog.facts.capacity import bytes_per_token
from watchdog.model import ModelShape

_Config = Mapping[str, Any]

# No model has as many layers, heads or experts, nor a row or a vocabulary as wide: beyond it a config is a mistake.
_GREATEST = 10**8
_MOST_LAYERS = 10_000
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_INTERMEDIATE = ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner")
_EXPERTS = ("num_local_experts", "n_routed_experts", "num_experts")
_ACTIVE_EXPERTS = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token")
# Two matrices in the feed-forward block instead of three, as these have no gate.
_UNGATED = frozenset(
    {"gpt2", "gpt_neox", "gpt_bigcode", "gptj", "opt", "bloom", "falcon", "phi", "mpt", "starcoder2"}
)
# Layers of these names keep no keys and values: a state of one size for each request, or nothing.
_STATE = ("linear", "mamba", "recurrent", "conv", "rwkv", "moe", "mlp")
_WINDOWED = ("sliding", "local", "chunked")
# Bits a weight takes with its scales (a scale of 16 bits for 128 weights of 4 bits, of 8 bits for 32 in mxfp4).
_BITS_WITH_SCALES = {4: 4.16, 8: 8.0, 16: 16.0, 32: 32.0}
_BITS_BY_METHOD = {"fp8": 8.0, "fbgemm_fp8": 8.0, "mxfp4": 4.25, "nvfp4": 4.5, "modelopt_fp4": 4.5}
_DTYPE_BITS = {"float32": 32.0, "float": 32.0}


class ConfigShapeError(ValueError):
    """A config.json that does not say what the KV cache of a token takes; the text names the field."""


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Layers that keep the same for each token.

    `window_tokens` is None where they keep all tokens. A latent group keeps one compressed row a token instead
    of keys and values (MLA), and every GPU of a tensor parallel group holds it whole.
    """

    layers: int
    kv_heads: int
    head_dimension: int
    window_tokens: int | None = None
    latent: bool = False

    def token_bytes(self, cache_dtype: str = "auto", gpus: int = 1) -> float | None:
        """Bytes a token takes on each of `gpus`; None where the cache's type has no size that is known."""
        heads = self.kv_heads if self.latent else max(1, -(-self.kv_heads // max(gpus, 1)))
        both = bytes_per_token(ModelShape(self.layers, heads, self.head_dimension), cache_dtype)
        return both if both is None or not self.latent else both / 2

    def kept_tokens(self, tokens: float) -> float:
        """Of a request of so many tokens, those whose keys and values stay."""
        return tokens if self.window_tokens is None else min(tokens, self.window_tokens)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model as its config.json describes it; `state_layers` keep no keys and values.

    Parameters are None where layers of another kind than attention make the count uncertain; `active_parameters`
    are those that one token reads. `embedding_parameters` of them stay at 16 bits when the rest is quantised.
    """

    groups: tuple[AttentionGroup, ...]
    hidden_size: int
    intermediate_size: int
    max_model_len: int | None
    state_layers: int = 0
    parameters: int | None = None
    active_parameters: int | None = None
    embedding_parameters: int = 0
    weight_bits: float = 16.0

    def token_bytes(self, cache_dtype: str = "auto", gpus: int = 1) -> float | None:
        """Bytes of one token's keys and values on each of `gpus`, over all layers; None where that is unknown."""
        return self._sum(1.0, cache_dtype, gpus)

    def request_bytes(self, tokens: float, cache_dtype: str = "auto", gpus: int = 1) -> float | None:
        """Bytes that a request of so many tokens holds on each of `gpus`; windows keep the newest tokens only."""
        return self._sum(tokens, cache_dtype, gpus)

    @property
    def is_windowed(self) -> bool:
        """Whether some layers forget, so that a long request takes less than its tokens."""
        return any(group.window_tokens is not None for group in self.groups)

    def weight_bytes(self, bits: float | None = None, active: bool = False) -> float | None:
        """Bytes of the weights at so many bits (as the config says if None), of all or of one token's part."""
        count = self.active_parameters if active else self.parameters
        if count is None:
            return None
        chosen = self.weight_bits if bits is None else bits
        kept = min(self.embedding_parameters, count) if chosen < 16 else 0
        return (count - kept) * chosen / 8 + kept * 2

    def _sum(self, tokens: float, cache_dtype: str, gpus: int) -> float | None:
        total = 0.0
        for group in self.groups:
            each = group.token_bytes(cache_dtype, gpus)
            if each is None:
                return None
            total += each * group.kept_tokens(tokens)
        return total


def architecture_of(config: _Config) -> Architecture:
    """The architecture that a config.json describes, that of its text model where there are several.

    Raises ConfigShapeError where a field that the KV cache depends on is missing or no sensible number.
    """
    text = _text_part(config)
    layers = _needed(text, _LAYERS)
    if layers > _MOST_LAYERS:
        raise ConfigShapeError(f"`{_LAYERS[0]}` is above {_MOST_LAYERS}")
    hidden = _needed(text, _HIDDEN)
    heads = _needed(text, _HEADS)
    groups, state_layers = _groups(text, layers, heads, hidden)
    intermediate = _number(text, _INTERMEDIATE) or 4 * hidden
    quantisation = config.get("quantization_config") or text.get("quantization_config")
    plain = Architecture(
        groups=groups,
        hidden_size=hidden,
        intermediate_size=max(intermediate, _active_expert_width(text)),
        max_model_len=_number(text, ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")),
        state_layers=state_layers,
        weight_bits=_weight_bits(quantisation, str(text.get("dtype") or text.get("torch_dtype") or "")),
    )
    return plain if state_layers else _with_parameters(plain, text, layers, heads, hidden, intermediate)


def bits_of_quantisation(name: str) -> float | None:
    """Bits a weight takes in a quantisation as people name it (fp8, awq, int4, 8); None for an unknown name."""
    lowered = name.strip().lower()
    if lowered in _BITS_BY_METHOD:
        return _BITS_BY_METHOD[lowered]
    if lowered in {"awq", "gptq", "awq_marlin", "gptq_marlin", "bitsandbytes"}:
        return _BITS_WITH_SCALES[4]
    if lowered in {"none", "auto", "bfloat16", "float16", "half"}:
        return 16.0
    match = re.fullmatch(r"(?:int|fp|w)?(4|8|16|32)(?:a\d+|bit)?", lowered)
    return _BITS_WITH_SCALES[int(match[1])] if match else None


def _text_part(config: _Config) -> _Config:
    for name in ("text_config", "llm_config", "language_config", "thinker_config"):
        part = config.get(name)
        if isinstance(part, Mapping):
            return _text_part({"torch_dtype": config.get("torch_dtype"), **part})
    return config


def _number(config: _Config, names: Iterable[str]) -> int | None:
    """The first field of these that is a whole number above zero; None where there is none."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= _GREATEST:
            return int(value)
    return None


def _needed(config: _Config, names: Sequence[str]) -> int:
    found = _number(config, names)
    if found is None:
        raise ConfigShapeError(f"`{names[0]}` is missing or no number above zero")
    return found


def _groups(config: _Config, layers: int, heads: int, hidden: int) -> tuple[tuple[AttentionGroup, ...], int]:
    latent = _number(config, ("kv_lora_rank",))
    if latent is not None:
        width = latent + (_number(config, ("qk_rope_head_dim",)) or 0)
        return (AttentionGroup(layers, 1, width, latent=True),), 0
    kv_heads = _kv_heads(config, heads)
    dimension = _number(config, ("head_dim", "kv_channels", "attention_head_dim")) or hidden // heads
    if dimension == 0:
        raise ConfigShapeError("`hidden_size` is smaller than the number of heads")
    full, windowed, state = _layer_kinds(config, layers)
    window = _number(config, ("sliding_window", "attention_chunk_size", "sliding_window_size"))
    found = [AttentionGroup(full, kv_heads, dimension)] if full else []
    if windowed:
        found.append(AttentionGroup(windowed, kv_heads, dimension, window))
    if not found:
        raise ConfigShapeError("no layer keeps keys and values: this model has no KV cache")
    return tuple(found), state


def _kv_heads(config: _Config, heads: int) -> int:
    found = _number(config, ("num_key_value_heads", "multi_query_group_num", "n_head_kv"))
    if found is not None:
        return found
    if config.get("multi_query") is True and config.get("new_decoder_architecture") is not True:
        return 1
    return _number(config, ("num_kv_heads",)) or heads


def _layer_kinds(config: _Config, layers: int) -> tuple[int, int, int]:
    """Layers that keep all tokens, a window of them, and none."""
    names = _layer_names(config, layers)
    state = sum(any(mark in name for mark in _STATE) for name in names)
    windowed = sum(any(mark in name for mark in _WINDOWED) for name in names)
    return layers - state - windowed, windowed, state


def _layer_names(config: _Config, layers: int) -> list[str]:
    """What each layer is called in the config, or would be where only a rule says which is which."""
    for name in ("layer_types", "layers_block_type"):
        told = config.get(name)
        if isinstance(told, list) and len(told) == layers:
            return [str(each).lower() for each in told]
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) == layers:
        return ["full" if each == "*" else "mamba" for each in pattern]
    indices = config.get("attn_layer_indices")
    if isinstance(indices, list):
        return ["full" if position in indices else "mamba" for position in range(layers)]
    every = _number(config, ("attn_layer_period", "full_attention_interval"))
    if every is not None:
        offset = config.get("attn_layer_offset", every - 1)
        return ["full" if position % every == offset else "linear" for position in range(layers)]
    return _windows_by_rule(config, layers)


def _windows_by_rule(config: _Config, layers: int) -> list[str]:
    has_window = _number(config, ("sliding_window",)) is not None
    if not has_window or config.get("use_sliding_window") is False:
        return ["full"] * layers
    pattern = _number(config, ("sliding_window_pattern", "_sliding_window_pattern"))
    if pattern is None:
        pattern = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2}.get(
            str(config.get("model_type"))
        )
    if pattern is None:
        first = config.get("max_window_layers") if config.get("use_sliding_window") is True else 0
        kept = first if isinstance(first, int) and 0 <= first <= layers else 0
        return ["full"] * kept + ["sliding"] * (layers - kept)
    return ["full" if (position + 1) % pattern == 0 else "sliding" for position in range(layers)]


def _weight_bits(quantisation: object, dtype: str) -> float:
    plain = _DTYPE_BITS.get(dtype.removeprefix("torch."), 16.0)
    if not isinstance(quantisation, Mapping):
        return plain
    method = str(quantisation.get("quant_method", "")).lower()
    if method in _BITS_BY_METHOD:
        return _BITS_BY_METHOD[method]
    if quantisation.get("load_in_4bit") is True:
        return _BITS_WITH_SCALES[4]
    if quantisation.get("load_in_8bit") is True:
        return _BITS_WITH_SCALES[8]
    bits = _number(quantisation, ("bits", "w_bit", "num_bits")) or _group_bits(quantisation)
    return _BITS_WITH_SCALES.get(bits, float(bits)) if bits else plain


def _group_bits(quantisation: _Config) -> int | None:
    """Bits of the weights in the form of compressed-tensors: one entry a group of layers."""
    groups = quantisation.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        bits = _number(weights, ("num_bits",)) if isinstance(weights, Mapping) else None
        if bits:
            return bits
    return None


def _active_expert_width(config: _Config) -> int:
    width = _number(config, ("moe_intermediate_size",))
    return (width or 0) * (_number(config, _ACTIVE_EXPERTS) or 0)


def _with_parameters(
    plain: Architecture, config: _Config, layers: int, heads: int, hidden: int, intermediate: int
) -> Architecture:
    vocabulary = _number(config, ("vocab_size", "padded_vocab_size"))
    if vocabulary is None:
        return plain
    tied = config.get("tie_word_embeddings", False) is True or str(config.get("model_type")) in {
        "gpt2",
        "bloom",
    }
    embeddings = vocabulary * hidden * (1 if tied else 2)
    attention = layers * _attention_parameters(config, heads, hidden, plain.groups)
    matrices = 2 if str(config.get("model_type")) in _UNGATED else 3
    dense = matrices * hidden * intermediate
    total, active = _feed_forward(config, layers, hidden, dense)
    return Architecture(
        groups=plain.groups,
        hidden_size=plain.hidden_size,
        intermediate_size=plain.intermediate_size,
        max_model_len=plain.max_model_len,
        weight_bits=plain.weight_bits,
        parameters=embeddings + attention + total,
        active_parameters=embeddings + attention + active,
        embedding_parameters=embeddings,
    )


def _attention_parameters(config: _Config, heads: int, hidden: int, groups: Sequence[AttentionGroup]) -> int:
    latent = _number(config, ("kv_lora_rank",))
    if latent is None:
        kv_heads, dimension = groups[0].kv_heads, groups[0].head_dimension
        return hidden * dimension * 2 * (heads + kv_heads)
    rope = _number(config, ("qk_rope_head_dim",)) or 0
    plain = _number(config, ("qk_nope_head_dim",)) or 0
    values = _number(config, ("v_head_dim",)) or plain
    compressed = _number(config, ("q_lora_rank",))
    width = heads * (plain + rope)
    queries = hidden * compressed + compressed * width if compressed else hidden * width
    keys = hidden * (latent + rope) + latent * heads * (plain + values)
    return queries + keys + heads * values * hidden


def _feed_forward(config: _Config, layers: int, hidden: int, dense: int) -> tuple[int, int]:
    """Parameters of all feed-forward blocks, and those of them that a token reads."""
    experts, chosen = _number(config, _EXPERTS), _number(config, _ACTIVE_EXPERTS)
    if experts is None or chosen is None or experts == 1:
        return layers * dense, layers * dense
    width = _number(config, ("moe_intermediate_size", "expert_dim")) or _number(config, _INTERMEDIATE) or 0
    expert = 3 * hidden * width
    shared = (_number(config, ("n_shared_experts",)) or 0) * expert
    shared += 3 * hidden * (_number(config, ("shared_expert_intermediate_size",)) or 0)
    sparse = _sparse_layers(config, layers)
    plain = (layers - sparse) * dense
    router = hidden * experts
    return (
        plain + sparse * (experts * expert + shared + router),
        plain + sparse * (min(chosen, experts) * expert + shared + router),
    )


def _sparse_layers(config: _Config, layers: int) -> int:
    first = _number(config, ("first_k_dense_replace",)) or 0
    every = _number(config, ("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step")) or 1
    only_dense = config.get("mlp_only_layers")
    dense = only_dense if isinstance(only_dense, list) else []
    return sum(
        position >= first and (position + 1) % every == 0 and position not in dense
        for position in range(layers)
    )
