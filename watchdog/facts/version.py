"""vLLM's version: its order, and what a metrics page gives away of it when the server does not say.

Read from the stat loggers and CacheConfig of vLLM 0.2.7 to 0.33.0. What is on a page proves more than what is
missing from it: a flag, a filter or a proxy takes series away, nothing adds them.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Literal

Engine = Literal["v0", "v1"]

_FORM = re.compile(
    r"v?(?P<release>\d{1,9}(?:\.\d{1,9}){1,5})"
    r"(?:[._-]?(?P<stage>a|alpha|b|beta|rc|c)[._-]?(?P<stage_number>\d{0,9}))?"
    r"(?:[._-]?post[._-]?(?P<post>\d{0,9}))?"
    r"(?:[._-]?dev[._-]?(?P<dev>\d{0,9}))?"
    r"(?:\+[a-z0-9._-]+)?",
    re.ASCII,
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "rc": 2, "c": 2}
_RELEASED = 3


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version of vLLM as it is written, in release order: dev, rc, release, post.

    Equal when they name the same release: "0.9" is "0.9.0", and a build tag behind "+" does not count.
    """

    text: str = field(compare=False)
    key: tuple[tuple[int, ...], tuple[int, int], int, tuple[int, int]]

    def __str__(self) -> str:
        return self.text


def parse_version(text: str | None) -> Version | None:
    """The version a server reports; None for other text, and for a build that found no version (0.1.dev)."""
    match = _FORM.fullmatch((text or "").strip().lower())
    if match is None:
        return None
    release = tuple(int(part) for part in match["release"].split("."))
    while release[-1:] == (0,):
        release = release[:-1]
    is_final = match["stage"] is None
    stage = (_RELEASED, 0) if is_final else (_STAGES[match["stage"]], int(match["stage_number"] or 0))
    post = -1 if match["post"] is None else int(match["post"] or 0)
    dev = (1, 0) if match["dev"] is None else (0, int(match["dev"] or 0))
    if release == (0, 1) and dev[0] == 0:
        return None  # what the build calls itself when it found no tag to count from
    if dev[0] == 0 and is_final and post < 0:
        stage = (-1, 0)  # a development build of a release comes before its first alpha
    return Version(match.group().split("+")[0].removeprefix("v"), (release, stage, post, dev))


def version(text: str) -> Version:
    """The version this text names; raises ValueError where it names none."""
    parsed = parse_version(text)
    if parsed is None:
        raise ValueError(f"{text!r} is no version of vLLM")
    return parsed


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions from `low` on and before `high`; None leaves that end open."""

    low: Version | None = None
    high: Version | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no version lies within."""
        return self.low is not None and self.high is not None and self.low >= self.high

    @property
    def is_open(self) -> bool:
        """Whether every version lies within, which is to say that nothing is known."""
        return self.low is None and self.high is None

    def contains(self, other: "Version | VersionRange") -> bool:
        """Whether the version, or every version of the range, lies within."""
        if isinstance(other, Version):
            return (self.low is None or self.low <= other) and (self.high is None or other < self.high)
        low_fits = self.low is None or (other.low is not None and self.low <= other.low)
        high_fits = self.high is None or (other.high is not None and other.high <= self.high)
        return low_fits and high_fits

    def intersection(self, other: "VersionRange") -> "VersionRange":
        """The versions that lie within both; an empty range where there are none."""
        lows = [end for end in (self.low, other.low) if end is not None]
        highs = [end for end in (self.high, other.high) if end is not None]
        return VersionRange(max(lows, default=None), min(highs, default=None))

    def __str__(self) -> str:
        ends = [f">= {self.low}"] if self.low else []
        ends += [f"< {self.high}"] if self.high else []
        return ", ".join(ends) or "any version"


def version_range(low: str = "", high: str = "") -> VersionRange:
    """A range from texts, an empty one leaving that end open; raises ValueError for what is no version."""
    return VersionRange(version(low) if low else None, version(high) if high else None)


def _ranges(rows: Mapping[str, tuple[str, str]]) -> Mapping[str, VersionRange]:
    return MappingProxyType({name: version_range(*ends) for name, ends in rows.items()})


# Series that tell the version: from which on, and before which, hidden metrics switched on again counted in.
# Families, without the suffix of a histogram or counter.
_NAMES = _ranges(
    {
        "num_requests_swapped": ("", "0.9.1"),
        "cpu_cache_usage_perc": ("", "0.9.1"),
        "gpu_prefix_cache_hit_rate": ("0.5.5", "0.9.1"),
        "cpu_prefix_cache_hit_rate": ("0.5.5", "0.9.1"),
        "time_in_queue_requests": ("0.6.4", "0.9.1"),
        "avg_prompt_throughput_toks_per_s": ("", "0.7.0"),
        "gpu_cache_usage_perc": ("", "0.12.0"),
        "gpu_prefix_cache_queries": ("0.7.3", "0.12.0"),
        "kv_cache_usage_perc": ("0.9.2", ""),
        "prefix_cache_queries": ("0.9.2", ""),
        "time_per_output_token_seconds": ("0.3.3", "0.15.0"),
        "inter_token_latency_seconds": ("0.10.2", ""),
        "request_time_per_output_token_seconds": ("0.11.0", ""),
        "external_prefix_cache_queries": ("0.11.1", ""),
        "engine_sleep_state": ("0.11.1", ""),
        "mm_cache_queries": ("0.11.1", ""),
        "kv_block_lifetime_seconds": ("0.12.0", ""),
        "request_prefill_kv_computed_tokens": ("0.13.0", ""),
        "prompt_tokens_by_source": ("0.16.0", ""),
        "prompt_tokens_cached": ("0.16.0", ""),
        "prompt_tokens_recomputed": ("0.16.0", "0.20.0"),
        "estimated_flops_per_gpu": ("0.17.0", ""),
        "num_requests_waiting_by_reason": ("0.20.0", ""),
        "request_num_preemptions": ("0.30.0", ""),
        "admission_rejections": ("0.32.0", ""),
        "prompt_tokens_cached_by_source": ("0.32.0", ""),
    }
)
# Labels of cache_config_info likewise: every field of CacheConfig is one. Left out: swap_space_bytes and
# cpu_kvcache_space_bytes, which a platform may add outside the versions whose CacheConfig declares them, and
# gpu_memory_utilization="0.92", which is a default from 0.20.0 on and a person's choice before.
_LABELS = _ranges(
    {
        "num_gpu_blocks_override": ("0.4.1", ""),
        "cpu_offload_gb": ("0.5.3", "0.18.0"),
        "is_attention_free": ("0.6.3", ""),
        "calculate_kv_scales": ("0.7.0", "0.28.0"),
        "prefix_caching_hash_algo": ("0.8.5", ""),
        "swap_space": ("", "0.18.0"),
        "mamba_page_size_padded": ("0.10.0", ""),
        "mamba_cache_dtype": ("0.10.1", ""),
        "kv_cache_memory_bytes": ("0.10.2", ""),
        "kv_offloading_size": ("0.11.1", ""),
        "mamba_cache_mode": ("0.15.0", ""),
        "user_specified_block_size": ("0.18.0", ""),
        "kv_cache_dtype_skip_layers": ("0.19.0", ""),
        "user_specified_mamba_block_size": ("0.20.0", "0.32.0"),
        "hash_block_size": ("0.20.0", ""),
        "kv_cache_size_tokens": ("0.24.0", ""),
        "skip_page_size_padded": ("0.25.1", ""),
        "prefix_match_unit": ("0.26.0", ""),
        "replayssm_buffer_len": ("0.27.0", ""),
        "kv_cache_layout": ("0.29.0", ""),
        "enable_mamba_fine_grained_prefix_cache": ("0.30.0", "0.31.0"),
        "effective_attention_block_size": ("0.31.0", ""),
        "cache_hit_alignment_tokens": ("0.32.0", ""),
        "simple_cpu_offload_num_blocks": ("0.33.0", ""),
    }
)
# A page with all of these carries the whole of CacheConfig: a label it lacks is a field that version lacks.
_WHOLE_CONFIG = frozenset(
    {"block_size", "gpu_memory_utilization", "cache_dtype", "num_gpu_blocks_override", "sliding_window"}
    | {"is_attention_free", "num_cpu_blocks", "enable_prefix_caching"}
)
# Fields that came and stayed, or were there from the start and went: on a whole page their lack is a bound.
_LASTING_LABELS = tuple(name for name, span in _LABELS.items() if span.low is None or span.high is None)

_V0_ONLY = frozenset(
    {"num_requests_swapped", "cpu_cache_usage_perc", "gpu_prefix_cache_hit_rate", "cpu_prefix_cache_hit_rate"}
    | {"time_in_queue_requests", "avg_prompt_throughput_toks_per_s", "spec_decode_draft_acceptance_rate"}
    | {"spec_decode_efficiency", "model_forward_time_milliseconds"}
)
_V1_ONLY = frozenset(
    {"gpu_prefix_cache_queries", "kv_cache_usage_perc", "prefix_cache_queries", "prompt_tokens_by_source"}
    | {"external_prefix_cache_queries", "engine_sleep_state", "request_prefill_kv_computed_tokens"}
    | {"num_requests_waiting_by_reason", "request_time_per_output_token_seconds", "request_num_preemptions"}
)

V1_DEFAULT_FROM = version("0.8.0")
V0_GONE_FROM = version("0.11.0")


def fingerprint(names: Collection[str], config_labels: Mapping[str, str]) -> VersionRange:
    """The versions that may have written a page with these sample names and labels of cache_config_info.

    Evidence that contradicts stronger evidence before it is left out (a proxy that renames, a fork), so the
    range is never empty; with no evidence it is open.
    """
    families = {_family(name) for name in names}
    bracket = VersionRange()
    for evidence in chain(_present(families, config_labels), _absent(families, config_labels)):
        narrower = bracket.intersection(evidence)
        if not narrower.is_empty:
            bracket = narrower
    return bracket


def guess_engine(
    names: Collection[str], config_labels: Mapping[str, str], known: Version | None = None
) -> Engine | None:
    """Which of vLLM's two engines wrote the page; None where neither the page nor the version shows it."""
    families = {_family(name) for name in names}
    if "engine" in config_labels or families & _V1_ONLY:
        return "v1"
    # V1 shows gpu_cache_usage_perc too, but only beside its prefix cache queries.
    if families & _V0_ONLY or "gpu_cache_usage_perc" in families:
        return "v0"
    if known is None or V1_DEFAULT_FROM <= known < V0_GONE_FROM:
        return None
    return "v0" if known < V1_DEFAULT_FROM else "v1"


def default_engine(known: Version) -> Engine:
    """The engine this version starts when nobody chooses one."""
    return "v0" if known < V1_DEFAULT_FROM else "v1"


def _family(name: str) -> str:
    bare = name.removeprefix("vllm:")
    for suffix in ("_bucket", "_sum", "_count", "_created"):
        bare = bare.removesuffix(suffix)
    return bare.removesuffix("_total")


def _present(families: Set[str], labels: Mapping[str, str]) -> Iterator[VersionRange]:
    yield from (span for name, span in _LABELS.items() if name in labels)
    yield from (span for name, span in _NAMES.items() if name in families)
    if "engine" in labels:
        yield version_range("0.8.5")
    elif guess_engine(families, labels) == "v0":
        yield VersionRange(high=V0_GONE_FROM)


def _absent(families: Set[str], labels: Mapping[str, str]) -> Iterator[VersionRange]:
    if labels.keys() >= _WHOLE_CONFIG:
        for name in _LASTING_LABELS:
            if name not in labels:
                yield _without(_LABELS[name])
    if "gpu_prefix_cache_queries" in families and "kv_cache_usage_perc" not in families:
        yield version_range("", "0.9.2")  # of V1, which had both gauges from 0.9.2 on
    if "kv_cache_usage_perc" in families and "gpu_cache_usage_perc" not in families:
        yield version_range("0.11.1")
    if families & _V1_ONLY and labels and "engine" not in labels:
        yield version_range("", "0.8.5")


def _without(span: VersionRange) -> VersionRange:
    """The versions that lack a field which came and stayed, or was there from the start and went."""
    return VersionRange(high=span.low) if span.high is None else VersionRange(low=span.high)
