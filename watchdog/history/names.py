"""vLLM's metric names over its versions: the one place that knows that two names mean the same.

Read from the stat loggers of vLLM 0.2.7 to 0.33.0. Where a page carries several names of one metric (0.9.2 to
0.11.0 expose old and new side by side with equal values), the first that is present is read, never a sum.
"""

from collections.abc import Mapping
from types import MappingProxyType

PREFIX = "vllm:"
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")

# Canonical name (the newest) -> older names, in the order in which they are tried.
_OLDER_NAMES: Mapping[str, tuple[str, ...]] = {
    "kv_cache_usage_perc": ("gpu_cache_usage_perc",),
    "prefix_cache_queries_total": ("gpu_prefix_cache_queries_total",),
    "prefix_cache_hits_total": ("gpu_prefix_cache_hits_total",),
    "inter_token_latency_seconds": ("time_per_output_token_seconds",),
    "request_queue_time_seconds": ("time_in_queue_requests",),
    "kv_offload_load_bytes_total": (),
    "kv_offload_store_bytes_total": (),
}

GAUGES = frozenset(
    {
        "num_requests_running",
        "num_requests_waiting",
        "num_requests_waiting_by_reason",
        "kv_cache_usage_perc",
        "engine_sleep_state",
        "num_requests_kv_fetch_by_stage",
        "cache_config_info",
        "lora_requests_info",
        "num_requests_swapped",
        "cpu_cache_usage_perc",
        "rl_weight_update_operations_in_flight",
    }
)
COUNTERS = frozenset(
    {
        "num_preemptions_total",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
        "external_prefix_cache_queries_total",
        "external_prefix_cache_hits_total",
        "mm_cache_queries_total",
        "mm_cache_hits_total",
        "prompt_tokens_total",
        "prompt_tokens_by_source_total",
        "prompt_tokens_cached_total",
        "prompt_tokens_recomputed_total",
        "generation_tokens_total",
        "request_success_total",
        "admission_rejections_total",
        "corrupted_requests_total",
        "spec_decode_num_drafts_total",
        "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total",
        "spec_decode_num_accepted_tokens_per_pos_total",
        "nixl_xfer_time_seconds_count",
        "mooncake_xfer_time_seconds_count",
        "nixl_num_failed_transfers_total",
        "nixl_num_kv_expired_reqs_total",
        "nixl_num_notifications_after_expiry_total",
        "mooncake_num_failed_transfers_total",
        "mooncake_num_failed_recvs_total",
        "mooncake_num_kv_expired_reqs_total",
        "kv_offload_load_bytes_total",
        "kv_offload_store_bytes_total",
        "kv_offload_load_time_total",
        "kv_offload_stores_skipped_total",
        "kv_offload_allocation_failure_total",
        "kv_offload_tiering_backpressure_stores_dropped_total",
        "kv_offload_tiering_promotion_allocation_failures_total",
        "kv_offload_tiering_promotion_job_failures_total",
        "kv_offload_tiering_cascade_job_failures_total",
        "mooncake_store_operation_failed_keys_total",
        "hf3fs_num_failed_load_total",
        "hf3fs_num_failed_save_total",
        "umbp_transfer_failed_total",
    }
)
HISTOGRAMS = frozenset(
    {
        "iteration_tokens_total",
        "request_prompt_tokens",
        "request_generation_tokens",
        "request_prefill_kv_computed_tokens",
        "request_params_n",
        "request_params_max_tokens",
        "request_num_preemptions",
        "time_to_first_token_seconds",
        "inter_token_latency_seconds",
        "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_inference_time_seconds",
        "kv_block_lifetime_seconds",
        "kv_block_idle_before_evict_seconds",
        "kv_block_reuse_gap_seconds",
    }
)
# What every engine of V1 counts from its start on, whatever its options.
COUNTED_FROM_START = frozenset(
    {
        "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:request_success_total",
        "vllm:iteration_tokens_total_count",
        "vllm:time_to_first_token_seconds_count",
        "vllm:request_prompt_tokens_sum",
        "vllm:request_generation_tokens_sum",
    }
)
# Series of the API server process and of its HTTP layer, and those that only tell the version.
PROCESS = frozenset(
    {
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "http_requests_total",
    }
)
# The series of an engine: a page that has one of them for a model and engine has that engine.
CORE = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:time_to_first_token_seconds_count",
    "vllm:iteration_tokens_total_count",
    "vllm:request_success_total",
    "vllm:num_preemptions_total",
    "vllm:prefix_cache_queries_total",
    "vllm:spec_decode_num_draft_tokens_total",
)


def _spellings(name: str, suffixes: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """The sample names of one metric, each with all the names it may stand under."""
    bases = (name, *_OLDER_NAMES.get(name, ()))
    return [(PREFIX + name + end, tuple(PREFIX + base + end for base in bases)) for end in suffixes]


def _aliases() -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {name: (name,) for name in PROCESS}
    for name in GAUGES:
        table.update(_spellings(name, ("",)))
    for name in COUNTERS:
        for sample, spellings in _spellings(name, ("",)):
            # Some rewriting proxies drop the suffix of counters.
            bare = tuple(spelling.removesuffix("_total") for spelling in spellings)
            table[sample] = spellings + bare
    for name in HISTOGRAMS:
        table.update(_spellings(name, HISTOGRAM_SUFFIXES))
    return table


ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType(_aliases())
# No signal reads these; they tell the version (signals/version.py) by being there.
_TELLING = frozenset(
    PREFIX + name
    for name in (
        "gpu_prefix_cache_hit_rate",
        "cpu_prefix_cache_hit_rate",
        "avg_prompt_throughput_toks_per_s",
        "spec_decode_draft_acceptance_rate",
        "spec_decode_efficiency",
        "model_forward_time_milliseconds_count",
        "estimated_flops_per_gpu_total",
        "prompt_tokens_cached_by_source_total",
    )
)
_WANTED = frozenset(spelling for spellings in ALIASES.values() for spelling in spellings) | _TELLING


def wanted(sample_name: str) -> bool:
    """Whether any signal reads samples of this name (prefix already normalised to `vllm:`)."""
    return sample_name in _WANTED


def wanted_pattern() -> str:
    """A regular expression for the names of vLLM that any signal reads, without their prefix."""
    names = {name.removeprefix(PREFIX) for name in _WANTED if name.startswith(PREFIX)}
    bucket, *others = HISTOGRAM_SUFFIXES
    bases = {name.removesuffix(bucket) for name in names if name.endswith(bucket)}
    names -= {base + suffix for base in bases for suffix in HISTOGRAM_SUFFIXES}
    bare = {name for name in names if f"{name}_total" in names}
    single = sorted(names - bare - {f"{name}_total" for name in bare})
    return "|".join(
        (
            *single,
            f"({'|'.join(sorted(bare))})(_total)?",
            f"({'|'.join(sorted(bases))})({'|'.join((bucket, *others))})",
        )
    )


def spellings(sample_name: str) -> tuple[str, ...]:
    """All names under which a canonical sample may stand on a page, the one to read first at the front.

    Raises KeyError for a name that is not in the table, so that a typo in the catalogue fails at import.
    """
    return ALIASES[sample_name]
