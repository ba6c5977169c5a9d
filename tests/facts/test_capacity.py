"""The KV cache in tokens, with the traps of its labels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.facts.capacity import (
    bytes_per_token,
    fp8_pool_tokens,
    is_quantised,
    pool_tokens,
    pool_tokens_of_shape,
    tokens_in,
    usual_memory_pool_tokens,
)
from watchdog.model import ModelShape

LLAMA_8B = ModelShape(layers=32, kv_heads=8, head_dimension=128, weight_bytes=16_060_000_000)
PLAIN = {
    "block_size": "16",
    "num_gpu_blocks": "27450",
    "num_gpu_blocks_override": "None",
    "sliding_window": "None",
}


@pytest.mark.parametrize(
    ("labels", "engines", "tokens"),
    [
        (PLAIN, 1, 439_200),
        (PLAIN | {"num_gpu_blocks": "54900"}, 2, 439_200),
        (PLAIN | {"num_gpu_blocks": "54901"}, 2, 439_200),
        (PLAIN | {"kv_cache_size_tokens": "439184"}, 1, 439_184),
        (PLAIN | {"kv_cache_size_tokens": "439184"}, 8, 439_184),
        (PLAIN | {"kv_cache_size_tokens": "None"}, 1, 439_200),
        (
            PLAIN | {"num_gpu_blocks": "4000", "num_gpu_blocks_override": "2000", "block_size": "32"},
            2,
            64_000,
        ),
        # A hybrid model's own count is right where it is told, and nothing else is.
        ({"block_size": "4", "num_gpu_blocks": "20377", "sliding_window": "128"}, 1, None),
        (
            {
                "block_size": "4",
                "num_gpu_blocks": "20377",
                "sliding_window": "128",
                "kv_cache_size_tokens": "1179770",
            },
            1,
            1_179_770,
        ),
        (PLAIN | {"mamba_page_size_padded": "2129920"}, 1, None),
        (PLAIN | {"mamba_page_size_padded": "None", "mamba_block_size": "None"}, 1, 439_200),
        (PLAIN | {"num_gpu_blocks": "None"}, 1, None),
        (PLAIN | {"num_gpu_blocks": "0"}, 1, None),
        (PLAIN | {"num_gpu_blocks": "nan"}, 1, None),
        (PLAIN | {"num_gpu_blocks": "inf"}, 1, None),
        (PLAIN | {"block_size": "None"}, 1, None),
        (PLAIN | {"is_attention_free": "True"}, 1, None),
        (PLAIN | {"is_attention_free": "False"}, 1, 439_200),
        (PLAIN, 0, None),
        ({}, 1, None),
    ],
)
def test_the_pool_in_tokens(labels: dict[str, str], engines: int, tokens: int | None) -> None:
    assert pool_tokens(labels, engines) == tokens


@given(
    st.dictionaries(st.sampled_from([*PLAIN, "kv_cache_size_tokens"]), st.text(max_size=8)),
    st.integers(-2, 9),
)
def test_any_labels_give_tokens_above_zero_or_nothing(labels: dict[str, str], engines: int) -> None:
    tokens = pool_tokens(labels, engines)
    assert tokens is None or tokens >= 0


def test_a_token_of_an_8b_llama_takes_128_kib_in_16_bit_and_half_of_it_in_fp8() -> None:
    assert bytes_per_token(LLAMA_8B) == 131_072
    assert bytes_per_token(LLAMA_8B, "fp8_e4m3") == 65_536
    assert bytes_per_token(LLAMA_8B, "float32") == 262_144


@pytest.mark.parametrize(
    ("shape", "cache_dtype"),
    [
        (ModelShape(), "auto"),
        (ModelShape(layers=32, kv_heads=8), "auto"),
        (ModelShape(layers=0, kv_heads=8, head_dimension=128), "auto"),
        (LLAMA_8B, "fp8_ds_mla"),
        (LLAMA_8B, "turboquant_3bit"),
        (LLAMA_8B, ""),
    ],
)
def test_an_unknown_shape_or_format_has_no_bytes_a_token(shape: ModelShape, cache_dtype: str) -> None:
    assert bytes_per_token(shape, cache_dtype) is None
    assert tokens_in(1e9, shape, cache_dtype) is None


def test_memory_in_tokens() -> None:
    assert tokens_in(16 * 2**30, LLAMA_8B) == 131_072
    assert tokens_in(16 * 2**30, LLAMA_8B, gpus=4) == 524_288
    assert tokens_in(16 * 2**30, LLAMA_8B, gpus=16) == 1_048_576, "eight KV heads divide by eight at most"
    assert tokens_in(None, LLAMA_8B) is None
    assert (
        pool_tokens_of_shape({"kv_cache_memory_bytes": "1073741824", "cache_dtype": "fp8"}, LLAMA_8B)
        == 16_384
    )
    assert pool_tokens_of_shape({"kv_cache_memory_bytes": "None"}, LLAMA_8B) is None


@pytest.mark.parametrize(
    ("tokens", "cache_dtype", "with_fp8"),
    [
        (100_000, "auto", 200_000),
        (100_000, "bfloat16", 200_000),
        (100_000, "fp8", None),
        (100_000, "fp8_ds_mla", None),
        (100_000, "nvfp4", None),
        (None, "auto", None),
    ],
)
def test_fp8_doubles_what_is_not_quantised_yet(
    tokens: int | None, cache_dtype: str, with_fp8: int | None
) -> None:
    assert fp8_pool_tokens(tokens, cache_dtype) == with_fp8


@pytest.mark.parametrize(
    "cache_dtype", ["fp8", "fp8_e5m2", "FP8_E4M3", "int8_per_token_head", "nvfp4", "turboquant_k8v4"]
)
def test_quantised_caches_are_known(cache_dtype: str) -> None:
    assert is_quantised(cache_dtype)


def test_16_bit_caches_are_not_quantised() -> None:
    assert not any(map(is_quantised, ("auto", "bfloat16", "half", "")))


def test_the_samples_of_every_version_give_their_pool(samples: list[tuple[str, dict[str, str]]]) -> None:
    for name, labels in samples:
        assert pool_tokens(labels, engines=1) in {439_200, 439_184}, name


@pytest.fixture
def samples() -> list[tuple[str, dict[str, str]]]:
    """Labels as vLLM 0.4.3, 0.10.2 and 0.33.0 print them."""
    common = {"block_size": "16", "cache_dtype": "auto", "num_gpu_blocks": "27450", "sliding_window": "None"}
    middle = common | {"engine": "0", "mamba_page_size_padded": "None", "kv_cache_memory_bytes": "None"}
    late = middle | {"kv_cache_size_tokens": "439184", "mamba_block_size": "None"}
    return [("0.4.3", common), ("0.10.2", middle), ("0.33.0", late)]


@pytest.mark.parametrize("absurd", ["1e300", "1e308", "9" * 400, "1e999", "nan", "-1", "0", "2e15"])
def test_a_label_that_no_server_can_mean_says_nothing(absurd: str) -> None:
    assert pool_tokens({"kv_cache_size_tokens": absurd}) is None
    assert pool_tokens({"block_size": absurd, "num_gpu_blocks": absurd}) is None
    assert pool_tokens(PLAIN | {"num_gpu_blocks_override": absurd}) == 439_200
    assert pool_tokens_of_shape({"kv_cache_memory_bytes": absurd}, LLAMA_8B) is None


def test_more_of_the_memory_holds_at_least_so_many_tokens() -> None:
    assert usual_memory_pool_tokens(226_000, 0.3) == 678_000
    # 0.6 of a GPU whose whole memory would hold a million tokens.
    assert usual_memory_pool_tokens(226_000, 0.3, 1_000_000.0) == 826_000
    assert usual_memory_pool_tokens(226_000, 0.9) is None
    assert usual_memory_pool_tokens(None, 0.3) is None
    assert usual_memory_pool_tokens(226_000, None) is None
    assert usual_memory_pool_tokens(226_000, 0.0) is None


@given(st.floats(1.0, 1e9), st.floats(0.01, 0.89), st.floats(0.0, 1e9))
def test_a_larger_share_never_holds_less(tokens: float, share: float, whole: float) -> None:
    found = usual_memory_pool_tokens(tokens, share, whole)
    assert found is not None
    assert found >= int(tokens)
