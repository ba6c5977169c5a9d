"""Versions in order, ranges of them, and what a page gives away of its own."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.facts.version import (
    Engine,
    Version,
    VersionRange,
    default_engine,
    fingerprint,
    guess_engine,
    parse_version,
    version,
    version_range,
)

IN_ORDER = [
    "0.2.7",
    "0.4.0",
    "0.4.0.post1",
    "0.5.3.post1",
    "0.6.3.post2.dev5",
    "0.6.3.post2",
    "0.8.5",
    "0.9.0",
    "0.9.0.1",
    "0.9.1rc1",
    "0.9.1",
    "0.9.2",
    "0.10.0",
    "0.10.2",
    "0.11.0.dev3",
    "0.11.0rc1.dev4",
    "0.11.0rc1",
    "0.11.0rc2",
    "0.11.0",
    "0.11.0.post2",
    "0.11.1",
    "0.24.0",
    "0.24.1a1",
    "0.24.1b2",
    "0.24.1rc1",
    "0.24.1",
    "0.25.1",
    "0.33.0",
    "1.0.0",
]

texts = st.sampled_from(IN_ORDER)
versions = texts.map(version)
ranges = st.builds(VersionRange, st.none() | versions, st.none() | versions)


def test_versions_are_in_release_order() -> None:
    for before, after in pairwise(IN_ORDER):
        assert version(before) < version(after), (before, after)
    assert sorted(map(version, reversed(IN_ORDER))) == [version(text) for text in IN_ORDER]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.9", "0.9.0"),
        ("v0.10.1", "0.10.1"),
        ("0.8.5+cu121", "0.8.5"),
        ("0.24.1RC1", "0.24.1rc1"),
        ("0.9.1-rc1", "0.9.1rc1"),
    ],
)
def test_spellings_of_one_version_are_equal(one: str, other: str) -> None:
    assert version(one) == version(other)
    assert hash(version(one)) == hash(version(other))


def test_a_nightly_build_keeps_its_place_without_its_tag() -> None:
    nightly = version("0.11.1rc2.dev100+g1a2b3c4.d20251011")
    assert version("0.11.1rc1") < nightly < version("0.11.1rc2")
    assert str(nightly) == "0.11.1rc2.dev100"


@pytest.mark.parametrize(
    "text", [None, "", "dev", "unknown", "0", "0.1.dev1+gabcdef", "1.2.3.4.5.6.7.8", "0.9.x", "0.9.1 beta"]
)
def test_what_is_no_version_is_none(text: str | None) -> None:
    assert parse_version(text) is None


def test_a_text_that_must_be_a_version_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'latest' is no version"):
        version("latest")


@given(st.text(max_size=40))
def test_any_text_is_a_version_or_none(text: str) -> None:
    assert parse_version(text) is None or isinstance(parse_version(text), Version)


def test_a_range_holds_its_low_end_and_not_its_high_one() -> None:
    span = version_range("0.9.2", "0.11.1")
    assert span.contains(version("0.9.2"))
    assert span.contains(version("0.11.0.post2"))
    assert not span.contains(version("0.11.1"))
    assert not span.contains(version("0.9.1"))
    assert str(span) == ">= 0.9.2, < 0.11.1"


def test_open_ends() -> None:
    assert VersionRange().is_open
    assert str(VersionRange()) == "any version"
    assert str(version_range("0.24.0")) == ">= 0.24.0"
    assert str(version_range("", "0.9.1")) == "< 0.9.1"
    assert VersionRange().contains(version_range("0.9.2", "0.11.1"))
    assert not version_range("0.9.2", "0.11.1").contains(VersionRange())
    assert not version_range("0.9.2").contains(version_range("", "0.11.1"))


def test_ranges_that_touch_share_nothing() -> None:
    assert version_range("0.9.2", "0.11.1").intersection(version_range("0.11.1")).is_empty
    assert not version_range("0.9.2", "0.11.1").intersection(version_range("0.11.0")).is_empty
    assert version_range("0.11.1", "0.9.2").is_empty


@given(ranges, ranges, versions)
def test_a_range_contains_what_lies_in_both_or_in_each(
    one: VersionRange, other: VersionRange, each: Version
) -> None:
    assert one.intersection(other).contains(each) == (one.contains(each) and other.contains(each))
    if one.contains(other) and other.contains(each):
        assert one.contains(each)
    if one.contains(each) and other.contains(each):
        assert not one.intersection(other).is_empty


WHOLE = dict.fromkeys(
    [
        "block_size",
        "gpu_memory_utilization",
        "cache_dtype",
        "num_gpu_blocks_override",
        "sliding_window",
        "is_attention_free",
        "num_cpu_blocks",
        "enable_prefix_caching",
        "num_gpu_blocks",
    ],
    "None",
)


def labels(*names: str) -> dict[str, str]:
    return WHOLE | dict.fromkeys(names, "None")


@pytest.mark.parametrize(
    ("names", "config", "bracket", "engine"),
    [
        ((), {}, "any version", None),
        (("vllm:num_requests_swapped",), {}, "< 0.9.1", "v0"),
        (("vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache_queries_total"), {}, ">= 0.7.3, < 0.9.2", "v1"),
        (("vllm:gpu_cache_usage_perc",), {}, "< 0.11.0", "v0"),
        (("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"), {}, ">= 0.9.2, < 0.12.0", "v1"),
        (
            ("vllm:kv_cache_usage_perc", "vllm:time_per_output_token_seconds_bucket"),
            {},
            ">= 0.11.1, < 0.15.0",
            "v1",
        ),
        (("vllm:external_prefix_cache_queries_total",), {}, ">= 0.11.1", "v1"),
        (("vllm:request_prefill_kv_computed_tokens_bucket",), {}, ">= 0.13.0", "v1"),
        (
            ("vllm:prompt_tokens_by_source_total", "vllm:prompt_tokens_recomputed_total"),
            {},
            ">= 0.16.0, < 0.20.0",
            "v1",
        ),
        (("vllm:num_requests_waiting_by_reason",), {}, ">= 0.20.0", "v1"),
        (("vllm:request_num_preemptions_count",), {}, ">= 0.30.0", "v1"),
        (("vllm:admission_rejections_total",), {}, ">= 0.32.0", None),
        ((), {"engine": "0", "block_size": "16"}, ">= 0.8.5", "v1"),
        ((), {"kv_cache_size_tokens": "64000"}, ">= 0.24.0", None),
        ((), {"simple_cpu_offload_num_blocks": "None"}, ">= 0.33.0", None),
        # A page that carries the whole configuration also tells by what it lacks.
        ((), labels(), ">= 0.6.3, < 0.8.5", None),
        (
            (),
            labels("calculate_kv_scales", "swap_space", "prefix_caching_hash_algo"),
            ">= 0.8.5, < 0.10.0",
            None,
        ),
        ((), WHOLE | {"gpu_memory_utilization": "0.92"}, ">= 0.6.3, < 0.8.5", None),
    ],
)
def test_a_page_gives_away_its_version(
    names: tuple[str, ...], config: dict[str, str], bracket: str, engine: Engine | None
) -> None:
    assert str(fingerprint(names, config)) == bracket
    assert guess_engine(names, config) == engine


def test_contradicting_evidence_never_empties_the_bracket() -> None:
    names = ("vllm:num_requests_swapped", "vllm:admission_rejections_total", "vllm:kv_cache_usage_perc")
    assert not fingerprint(names, {"simple_cpu_offload_num_blocks": "None"}).is_empty


@pytest.mark.parametrize(
    ("text", "engine"),
    [("0.6.6", "v0"), ("0.8.0", None), ("0.10.2", None), ("0.11.0", "v1"), ("0.33.0", "v1")],
)
def test_the_version_tells_the_engine_where_there_was_one_only(text: str, engine: Engine | None) -> None:
    assert guess_engine((), {}, version(text)) == engine


def test_the_engine_a_version_starts_by_itself() -> None:
    assert default_engine(version("0.7.3")) == "v0"
    assert default_engine(version("0.8.0")) == "v1"
