"""Sizes before anything runs, against published figures and against what real servers reported."""

import json
import lzma
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.places import RECORDINGS
from watchdog.facts.architecture import (
    Architecture,
    ConfigShapeError,
    architecture_of,
    bits_of_quantisation,
)
from watchdog.facts.gpus import Gpu, decode_ceiling_tokens_per_second, find_gpu, turning_batch
from watchdog.facts.sizing import Plan, alternatives, pace, size, streams_within

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
QWEN_14B: dict[str, Any] = {
    "model_type": "qwen2",
    "num_hidden_layers": 48,
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "intermediate_size": 13824,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
}
MIXTRAL: dict[str, Any] = LLAMA_8B | {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "vocab_size": 129280,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "q_lora_rank": 1536,
    "quantization_config": {"quant_method": "fp8"},
}


def gpu(name: str) -> Gpu:
    found = find_gpu(name)
    assert found is not None
    return found


def llama(**changes: Any) -> Architecture:
    return architecture_of(LLAMA_8B | changes)


# The KV cache of a token


@pytest.mark.parametrize(
    ("config", "token_bytes"),
    [
        (LLAMA_8B, 131_072),
        (LLAMA_8B | {"num_hidden_layers": 40}, 163_840),
        (QWEN_14B, 196_608),
        # Every head has keys of its own where no number of KV heads is given (MHA), one serves all under MQA.
        ({k: v for k, v in LLAMA_8B.items() if k != "num_key_value_heads"}, 524_288),
        (LLAMA_8B | {"num_key_value_heads": None, "multi_query": True}, 16_384),
        # One compressed row of 512 + 64 numbers a token and layer (MLA).
        (DEEPSEEK_V3, 61 * 576 * 2),
        # The text part of a model that also sees.
        ({"model_type": "llava", "text_config": LLAMA_8B, "vision_config": {"hidden_size": 1024}}, 131_072),
        (LLAMA_8B | {"head_dim": 256}, 262_144),
        # Three of four layers keep a state instead of tokens.
        (LLAMA_8B | {"full_attention_interval": 4}, 32_768),
        (LLAMA_8B | {"layer_types": ["mamba"] * 28 + ["attention"] * 4}, 16_384),
    ],
)
def test_what_a_token_takes(config: dict[str, Any], token_bytes: int) -> None:
    assert architecture_of(config).token_bytes() == token_bytes


def test_eight_thousand_tokens_of_an_8b_take_about_a_gigabyte() -> None:
    assert llama().request_bytes(8000) == pytest.approx(1.05e9, rel=0.01)
    assert llama().request_bytes(8000, "fp8") == pytest.approx(0.52e9, rel=0.01)
    assert llama().request_bytes(8000, "turboquant_4bit") is None


@pytest.mark.parametrize(("gpus", "token_bytes"), [(1, 131_072), (2, 65_536), (8, 16_384), (16, 16_384)])
def test_tensor_parallelism_divides_heads_and_repeats_what_it_cannot(gpus: int, token_bytes: int) -> None:
    assert llama().token_bytes(gpus=gpus) == token_bytes
    assert architecture_of(DEEPSEEK_V3).token_bytes(gpus=gpus) == 61 * 576 * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention", "sliding_attention"] * 16, "sliding_window": 1024},
        {"model_type": "gemma2", "sliding_window": 1024},
        {"sliding_window": 1024, "sliding_window_pattern": 2},
    ],
)
def test_a_layer_with_a_window_keeps_no_more_than_it(changes: dict[str, Any]) -> None:
    half = 131_072 / 2
    assert llama(**changes).request_bytes(1000) == 1000 * 131_072
    assert llama(**changes).request_bytes(10_000) == 10_000 * half + 1024 * half


def test_a_window_that_is_not_used_changes_nothing() -> None:
    assert architecture_of(QWEN_14B).is_windowed is False
    used = architecture_of(QWEN_14B | {"use_sliding_window": True, "max_window_layers": 40})
    assert [(each.layers, each.window_tokens) for each in used.groups] == [(40, None), (8, 131072)]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "num_hidden_layers"),
        (LLAMA_8B | {"num_hidden_layers": "32"}, "num_hidden_layers"),
        (LLAMA_8B | {"num_attention_heads": 0}, "num_attention_heads"),
        (LLAMA_8B | {"hidden_size": -1}, "hidden_size"),
        (LLAMA_8B | {"layer_types": ["mamba"] * 32}, "no KV cache"),
    ],
)
def test_a_config_that_does_not_tell_names_the_field(config: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigShapeError, match=field):
        architecture_of(config)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([LLAMA_8B, DEEPSEEK_V3, MIXTRAL]), st.data())
def test_any_field_may_hold_anything(config: dict[str, Any], data: st.DataObject) -> None:
    names = [*config, "layer_types", "sliding_window", "quantization_config", "mlp_only_layers"]
    broken = config | {data.draw(st.sampled_from(names)): data.draw(JSON)}
    try:
        architecture = architecture_of(broken)
    except ConfigShapeError:
        return
    assert architecture.token_bytes()
    size(Plan(architecture, gpu("H100")), [8000])


# Weights


@pytest.mark.parametrize(
    ("config", "billions", "active_billions"),
    [(LLAMA_8B, 8.03, 8.03), (QWEN_14B, 14.77, 14.77), (MIXTRAL, 46.7, 12.9), (DEEPSEEK_V3, 671, 37.5)],
)
def test_parameters_are_those_of_the_models_cards(
    config: dict[str, Any], billions: float, active_billions: float
) -> None:
    architecture = architecture_of(config)
    assert architecture.parameters == pytest.approx(billions * 1e9, rel=0.005)
    assert architecture.active_parameters == pytest.approx(active_billions * 1e9, rel=0.005)


@pytest.mark.parametrize(
    ("quantisation", "bits"),
    [
        (None, 16),
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "awq", "bits": 4}, 4.16),
        ({"quant_method": "mxfp4"}, 4.25),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 8}}}}, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4.16),
    ],
)
def test_bits_of_the_weights_come_from_the_config(quantisation: object, bits: float) -> None:
    assert llama(quantization_config=quantisation).weight_bits == bits


def test_names_of_quantisations_as_people_write_them() -> None:
    assert [bits_of_quantisation(each) for each in ("fp8", "INT8", "w4a16", "awq", "none", "q5")] == [
        *(8, 8, 4.16, 4.16, 16),
        None,
    ]


# Speed


@pytest.mark.parametrize(
    ("gigabytes_per_second", "tokens_per_second"),
    [(90, 6), (600, 38), (864, 54), (1008, 63), (2039, 127), (3350, 209)],
)
def test_the_ceiling_of_one_stream(gigabytes_per_second: float, tokens_per_second: float) -> None:
    bandwidth = gigabytes_per_second * 1e9
    ceiling = decode_ceiling_tokens_per_second(bandwidth, 16e9)
    assert ceiling == pytest.approx(tokens_per_second, abs=0.5)
    assert decode_ceiling_tokens_per_second(bandwidth, 8e9) == pytest.approx(2 * tokens_per_second, abs=1)


def test_where_compute_takes_over() -> None:
    assert turning_batch(gpu("H100")) == pytest.approx(295, abs=1)
    assert turning_batch(gpu("H100"), 8) == pytest.approx(148, abs=1)
    assert turning_batch(replace(gpu("H100"), operations_per_second=None)) is None


def test_a_mixture_reads_what_a_token_needs() -> None:
    found = size(Plan(architecture_of(MIXTRAL), gpu("H200")), [])
    assert found.ceiling_tokens_per_second == pytest.approx(4800e9 / (2 * 12.88e9), rel=0.01)


def test_a_full_batch_reads_its_own_cache_too() -> None:
    found = size(Plan(llama(), gpu("H100")), [8000])
    one, many = pace(found, 8000, 1), pace(found, 8000, 32)
    assert one is not None
    assert many is not None
    assert many.gap_seconds == pytest.approx((16.06e9 + 32 * 8000 * 131_072) / 3350e9, rel=0.01)
    assert many.tokens_per_second < 32 * one.tokens_per_second
    within = streams_within(found, 8000, many.gap_seconds)
    assert within is not None
    assert within >= 32 > (streams_within(found, 8000, one.gap_seconds) or 0)


# The pool


@pytest.mark.parametrize(
    ("name", "model", "flags"),
    [
        ("h200-healthy", LLAMA_8B, {"max_model_len": 32768}),
        ("h200-prefill-interference", LLAMA_8B, {"batch_tokens": 32768}),
        ("h200-prefill-interference-remedied", LLAMA_8B, {"batch_tokens": 2048}),
        ("h200-token-budget-too-small", LLAMA_8B, {"batch_tokens": 256}),
        ("h200-kv-fp8-twin-small-gpu", LLAMA_8B, {"memory_share": 0.17, "cache_dtype": "fp8"}),
        ("h200-kv-pool-long-contexts", LLAMA_8B, {"memory_share": 0.30}),
        ("h200-one-server-long", QWEN_14B, {"max_model_len": 65536}),
    ],
)
def test_the_pool_is_within_five_percent_of_what_the_server_reported(
    name: str, model: dict[str, Any], flags: dict[str, Any]
) -> None:
    # The servers ran these shapes with a vocabulary of 32,000.
    plan = Plan(architecture_of(model | {"vocab_size": 32000}), gpu("H200"), **flags)
    assert size(plan, []).pool_tokens == pytest.approx(reported_tokens(name), rel=0.05)


def reported_tokens(name: str) -> int:
    with lzma.open(RECORDINGS / f"{name}.jsonl.xz", "rt") as lines:
        next(lines)
        for line in lines:
            found = re.search(r'kv_cache_size_tokens="(\d+)"', json.loads(line).get("text") or "")
            if found:
                return int(found[1])
    raise AssertionError(name)


def test_what_does_not_fit_is_said() -> None:
    small = size(Plan(llama(), gpu("4090")), [8000])
    assert small.weights_fit is True
    assert small.length_fits is False
    assert small.longest_request_tokens == small.pool_tokens
    none = size(Plan(architecture_of(DEEPSEEK_V3), gpu("H100")), [8000])
    assert none.weights_fit is False
    assert none.requests == {8000: 0}


def test_without_a_gpu_only_what_the_config_tells() -> None:
    found = size(Plan(llama()), [8000])
    assert (found.token_bytes, found.pool_tokens, found.requests) == (131_072, None, {})
    assert found.weights_fit is None


@given(st.sampled_from(["H100", "L40S", "MI300X", "4090"]), st.integers(1, 8), st.floats(0.3, 0.94))
def test_every_alternative_holds_more(name: str, gpus: int, share: float) -> None:
    plan = Plan(llama(), gpu(name), gpus=gpus, memory_share=share)
    before = size(plan, [8000])
    for change, other in alternatives(plan).items():
        assert (size(other, [8000]).pool_tokens or 0) >= (before.pool_tokens or 0), change
