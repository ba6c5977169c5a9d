"""How much the KV cache holds: tokens, bytes a token, requests at once."""

from collections.abc import Mapping

from watchdog.model import ModelShape

# Bytes an element takes in the cache, by label cache_dtype; "auto" is the model's own type, 16 bits for
# nearly every model served. What is not listed (scales inside, latent caches) has no size that follows from a shape.
_ELEMENT_BYTES: Mapping[str, float] = {
    "auto": 2,
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "float": 4,
    "float32": 4,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
}
# No server has a petabyte or a quadrillion tokens; a label that says so says nothing.
_GREATEST = 1e15
_QUANTISED = ("fp8", "int8", "int4", "int2", "nvfp4", "mxfp", "turboquant")
_SET_BY_NOBODY = frozenset({"", "none", "false", "0", "[]"})


def _label_amount(labels: Mapping[str, str], name: str) -> float | None:
    """A label's value as a number above zero; None for "None", for nothing and for what no server can have."""
    try:
        value = float(labels.get(name, ""))
    except ValueError:
        return None
    return value if 0 < value <= _GREATEST else None


def is_quantised(cache_dtype: str) -> bool:
    """Whether the cache already keeps less than 16 bits an element."""
    return cache_dtype.strip().lower().startswith(_QUANTISED)


def is_hybrid(config: Mapping[str, str]) -> bool:
    """Whether groups of layers may share the pool, so that blocks times block size is not its capacity.

    State space layers pad their pages, sliding windows form groups of their own.
    """
    signs = ("mamba_page_size_padded", "mamba_block_size", "sliding_window")
    return any(config.get(name, "").strip().lower() not in _SET_BY_NOBODY for name in signs)


def pool_tokens(config: Mapping[str, str], engines: int = 1) -> int | None:
    """The tokens one engine's KV cache holds, by the labels of cache_config_info; None where they do not tell.

    `engines` is how many engines the page shows: under data parallelism every line carries the sum of their
    blocks, while kv_cache_size_tokens and a blocks override count one engine.
    """
    told = _label_amount(config, "kv_cache_size_tokens")
    if told is not None:
        return int(told)
    attention_free = config.get("is_attention_free", "").strip().lower() == "true"
    blocks, block_tokens = _blocks(config, engines), _label_amount(config, "block_size")
    if blocks is None or block_tokens is None or attention_free or is_hybrid(config):
        return None
    return int(blocks * block_tokens)


def _blocks(config: Mapping[str, str], engines: int) -> float | None:
    blocks = _label_amount(config, "num_gpu_blocks")
    if blocks is None or engines < 1:
        return None
    return _label_amount(config, "num_gpu_blocks_override") or blocks // engines


def bytes_per_token(shape: ModelShape, cache_dtype: str = "auto") -> float | None:
    """Bytes of keys and values of a token, over all layers and GPUs; None where that is unknown."""
    element = _ELEMENT_BYTES.get(cache_dtype.strip().lower())
    if not shape.layers or not shape.kv_heads or not shape.head_dimension or element is None:
        return None
    return 2 * shape.layers * shape.kv_heads * shape.head_dimension * element


def tokens_in(
    memory_bytes: float | None, shape: ModelShape, cache_dtype: str = "auto", gpus: int = 1
) -> int | None:
    """The tokens that fit into so much memory on each GPU; None where memory or shape are not known.

    Tensor parallelism divides the KV heads among its GPUs, and repeats them where there are fewer than GPUs.
    """
    per_token = bytes_per_token(shape, cache_dtype)
    if memory_bytes is None or memory_bytes <= 0 or per_token is None or not shape.kv_heads:
        return None
    return int(memory_bytes * min(max(gpus, 1), shape.kv_heads) // per_token)


def pool_tokens_of_shape(config: Mapping[str, str], shape: ModelShape, gpus: int = 1) -> int | None:
    """The pool's tokens from its bytes on each GPU, where the labels state these and no usable blocks."""
    memory_bytes = _label_amount(config, "kv_cache_memory_bytes")
    return tokens_in(memory_bytes, shape, config.get("cache_dtype", "auto"), gpus)


def fp8_pool_tokens(tokens: float | None, cache_dtype: str) -> int | None:
    """The tokens the same memory holds with an fp8 cache; None where it is quantised already or unknown."""
    element = _ELEMENT_BYTES.get(cache_dtype.strip().lower())
    if tokens is None or element is None or is_quantised(cache_dtype):
        return None
    return int(tokens * element)


USUAL_MEMORY_SHARE = 0.9
"""The share of the GPU's memory that vLLM takes by default (0.92 from 0.20)."""


def usual_memory_pool_tokens(
    tokens: float | None, share: float | None, added_tokens_a_share: float | None = None
) -> int | None:
    """The tokens the pool holds with the usual share of the GPU's memory; None where it has that, or is unknown.

    What does not grow (weights, activations) is paid already, so the pool grows at least as the share does: that is the
    figure unless `added_tokens_a_share`, the tokens that the whole memory of the GPUs would hold, is known.
    """
    if tokens is None or share is None or not 0 < share < USUAL_MEMORY_SHARE:
        return None
    least = tokens * USUAL_MEMORY_SHARE / share
    added = (USUAL_MEMORY_SHARE - share) * (added_tokens_a_share or 0.0)
    return int(max(least, tokens + added))
