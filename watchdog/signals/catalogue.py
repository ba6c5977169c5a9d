"""Every signal a rule may name: its formula, its unit and what it says. Declared once, here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from watchdog.history.layout import Selector
from watchdog.model import Lookup
from watchdog.signals.algebra import (
    Age,
    Baseline,
    Bounded,
    Change,
    Constant,
    Fact,
    First,
    Gauge,
    GaugeDelta,
    Greater,
    Increase,
    IncreaseOrZero,
    Label,
    LastingChange,
    LastingRate,
    Mean,
    MeanWhile,
    NamesInLists,
    NewestLabel,
    NewestListLength,
    Node,
    OfServer,
    Peak,
    Quantile,
    Rate,
    Ratio,
    ReleasedSince,
    ShareOfTime,
    Slope,
    SumOfKnown,
    TimeShareAbove,
    View,
    WholeSteps,
    WindowSeconds,
)

BASELINE = "_baseline"


@dataclass(frozen=True, slots=True)
class Signal:
    """A named number: `unit` in words, `description` in one sentence, `node` its formula."""

    name: str
    unit: str
    description: str
    node: Node


@cache
def _vllm(metric: str, **labels: str) -> Selector:
    return Selector(f"vllm:{metric}", tuple(labels.items()))


@cache
def _answers(handler: str) -> Selector:
    return Selector("http_requests_total", (("handler", handler), ("method", "POST"), ("status", "2xx")))


_RUNNING = _vllm("num_requests_running")
_WAITING = _vllm("num_requests_waiting")
_KV_USAGE = _vllm("kv_cache_usage_perc")
_TTFT = "vllm:time_to_first_token_seconds"
_ITL = "vllm:inter_token_latency_seconds"
_QUEUE = "vllm:request_queue_time_seconds"
_PREFILL = "vllm:request_prefill_time_seconds"
_DECODE = "vllm:request_decode_time_seconds"
_E2E = "vllm:e2e_request_latency_seconds"
_PROMPT = "vllm:request_prompt_tokens"
_OUTPUT = "vllm:request_generation_tokens"
_STEPS = _vllm("iteration_tokens_total_count")
_STEP_TOKENS = _vllm("iteration_tokens_total_sum")
_FIRST_TOKENS = _vllm("time_to_first_token_seconds_count")
_PROMPT_TOKENS = _vllm("prompt_tokens_total")
_GENERATION_TOKENS = _vllm("generation_tokens_total")
_FINISHED = _vllm("request_success_total")
_CONFIG = _vllm("cache_config_info")
_LORA = _vllm("lora_requests_info")
_OPEN_FILES = Selector("process_open_fds")

# A ratio of few tokens or requests says nothing: 1000 tokens, 10 requests for a share, 5 for a mean.
_LEAST_TOKENS = 1000.0
_LEAST_DRAFTED_TOKENS = 500.0
_LEAST_REQUESTS = 10.0

_first_tokens = Increase(_FIRST_TOKENS)
_prompt_tokens = Increase(_PROMPT_TOKENS)
_generation_tokens = Increase(_GENERATION_TOKENS)
_finished = Increase(_FINISHED)
_prefix_queries = Increase(_vllm("prefix_cache_queries_total"))
_prefix_hits = Ratio(Increase(_vllm("prefix_cache_hits_total")), _prefix_queries, _LEAST_TOKENS)
# Three long prompts in the window are enough to see their length; an average of one is not.
_prompt_tokens_per_first_token = Ratio(_prompt_tokens, _first_tokens, 3.0)
_computed_prompt_tokens = First(
    (
        Ratio(Increase(_vllm("prompt_tokens_by_source_total", source="local_compute")), _first_tokens, 3.0),
        Mean("vllm:request_prefill_kv_computed_tokens", 3.0),
        _prompt_tokens_per_first_token * (Constant(1.0) - _prefix_hits),
        _prompt_tokens_per_first_token,
    )
)
_prompt_mean = First((Mean(_PROMPT), _prompt_tokens_per_first_token))
_output_mean = First((Mean(_OUTPUT), Ratio(_generation_tokens, _first_tokens, 5.0)))
_request_tokens = _prompt_mean + _output_mean
# A request holds whole blocks: 149 tokens in blocks of 256 take 256.
_request_room = WholeSteps(_request_tokens, Label(_CONFIG, "block_size"))
_ttft_mean = Mean(_TTFT)
_prefill_mean = Mean(_PREFILL)
_finishes_by = {
    reason: IncreaseOrZero(_vllm("request_success_total", finished_reason=reason), _FINISHED)
    for reason in ("stop", "length", "abort", "error")
}
_all_finishes = _finishes_by["stop"] + _finishes_by["length"] + _finishes_by["abort"] + _finishes_by["error"]
_drafted = Increase(_vllm("spec_decode_num_draft_tokens_total"))
_miss_tokens_per_second = Rate(_PROMPT_TOKENS) * (Constant(1.0) - _prefix_hits)
# Gaps that a reader of a stream notices: half a second, and never less than five of the server's own usual gaps.
# A prompt of a few thousand tokens is a gap of 0.3 s on many a healthy GPU; streams run ahead of readers by more.
_stall_bound = Greater(Constant(0.5), Baseline(Quantile(0.5, _ITL)) * Constant(5.0))


def _signals() -> Iterator[Signal]:
    yield from _scheduler()
    yield from _progress()
    yield from _kv_pool()
    yield from _traffic()
    yield from _latency()
    yield from _prefix_cache()
    yield from _outcome()
    yield from _told()
    yield from _target()
    yield from _engines()


def _scheduler() -> Iterator[Signal]:
    yield Signal(
        "running_last", "requests", "Requests in the batch on the newest page.", Gauge(_RUNNING, "last")
    )
    yield Signal("running_mean", "requests", "Mean requests in the batch.", Gauge(_RUNNING))
    yield Signal(
        "running_recent_max",
        "requests",
        "Most requests in the batch in the last 15 s.",
        Gauge(_RUNNING, "max", recent=True),
    )
    yield Signal(
        "running_recent_min",
        "requests",
        "Fewest requests in the batch in the last 15 s.",
        Gauge(_RUNNING, "min", recent=True),
    )
    yield Signal(
        "running_peak",
        "requests",
        "Most requests in the batch seen in this engine's life, up to 11 minutes back.",
        Peak(_RUNNING),
    )
    yield Signal(
        "running_while_waiting",
        "requests",
        "Mean requests in the batch while others wait.",
        MeanWhile(_RUNNING, _WAITING),
    )
    yield Signal(
        "running_share_of_time",
        "ratio",
        "Share of the window in which something ran.",
        ShareOfTime(_RUNNING, 0.0),
    )
    yield Signal(
        "waiting_last", "requests", "Requests in the queue on the newest page.", Gauge(_WAITING, "last")
    )
    yield Signal("waiting_mean", "requests", "Mean requests in the queue.", Gauge(_WAITING))
    yield Signal("waiting_max", "requests", "Longest queue in the window.", Gauge(_WAITING, "max"))
    yield Signal(
        "waiting_recent_min",
        "requests",
        "Shortest queue in the last 15 s: above 0 the queue never emptied.",
        Gauge(_WAITING, "min", recent=True),
    )
    yield Signal(
        "waiting_share_of_time",
        "ratio",
        "Share of the window in which something waited.",
        ShareOfTime(_WAITING, 0.0),
    )
    yield Signal(
        "waiting_slope_per_second",
        "requests/s",
        "How fast the queue grows; negative while it drains.",
        Slope(_WAITING),
    )
    yield Signal(
        "deferred_ratio",
        "ratio",
        "Share of the queue held back by LoRA slots, grammar or remote KV (0.20 and later).",
        Ratio(Gauge(_vllm("num_requests_waiting_by_reason", reason="deferred")), Gauge(_WAITING), 0.5),
    )
    yield Signal(
        "preemptions",
        "preemptions",
        "Requests thrown out of the batch for want of KV blocks.",
        Increase(_vllm("num_preemptions_total")),
    )
    yield Signal(
        "preemptions_per_second", "1/s", "Preemptions a second.", Rate(_vllm("num_preemptions_total"))
    )
    yield Signal(
        "lora_running_adapters",
        "adapters",
        "Adapters in the batch now.",
        NewestListLength(_LORA, "running_lora_adapters"),
    )
    yield Signal(
        "lora_waiting_adapters",
        "adapters",
        "Adapters that wait now.",
        NewestListLength(_LORA, "waiting_lora_adapters"),
    )
    yield Signal(
        "lora_adapters",
        "adapters",
        "Different adapters named on the page in the window, in the batch or waiting.",
        NamesInLists(_LORA, ("running_lora_adapters", "waiting_lora_adapters")),
    )
    yield Signal(
        "lora_slots",
        "adapters",
        "Adapters that fit in one batch (--max-loras).",
        NewestLabel(_LORA, "max_lora"),
    )


def _progress() -> Iterator[Signal]:
    marks = (_STEPS, _PROMPT_TOKENS, _GENERATION_TOKENS, _FIRST_TOKENS)
    yield Signal(
        "seconds_since_progress", "s", "Time since a step ended or a token counter moved.", Age(marks)
    )
    yield Signal(
        "server_seconds_since_progress",
        "s",
        "The same over all engines of the server: what its process shows may be due to any of them.",
        OfServer(Age(marks)),
    )
    yield Signal("steps_per_second", "1/s", "Engine steps a second.", Rate(_STEPS))
    yield Signal(
        "tokens_per_step",
        "tokens",
        "Tokens booked in a mean step (a whole prompt is booked in the step that ends it).",
        Ratio(Increase(_STEP_TOKENS), Increase(_STEPS), 10.0),
    )
    yield Signal(
        "prompt_tokens_per_step",
        "tokens",
        "Prompt tokens over steps: the chunk of prefill a step really takes.",
        Ratio(_prompt_tokens, Increase(_STEPS), 10.0),
    )
    yield Signal(
        "open_files_climb",
        "files",
        "How far the API server's open files rose above their lowest in the window: a stuck connection is one.",
        Change(_OPEN_FILES),
    )
    yield Signal(
        "open_files_drop",
        "files",
        "Open files closed as progress stopped, beyond those of requests that left batch and queue: clients gone.",
        First((ReleasedSince(_OPEN_FILES, (_RUNNING, _WAITING), marks), Fact("open_files_drop_seen"))),
    )
    yield Signal(
        "open_files_lasting_climb",
        "files",
        "The smaller climb of the window's last two thirds: connections that open once and stay leave it at 0.",
        LastingChange(_OPEN_FILES),
    )
    yield Signal("open_files", "files", "Open files of the API server process.", Gauge(_OPEN_FILES, "last"))
    yield Signal(
        "api_server_cpu_ratio",
        "cores",
        "CPU the API server process takes.",
        Rate(Selector("process_cpu_seconds_total")),
    )
    yield Signal(
        "awake_ratio",
        "ratio",
        "1 while the engine is awake, 0 while it sleeps.",
        Gauge(_vllm("engine_sleep_state", sleep_state="awake"), "last"),
    )
    yield Signal(
        "weight_updates_in_flight",
        "operations",
        "Online weight updates in progress: a pause on purpose.",
        Gauge(_vllm("rl_weight_update_operations_in_flight"), "last"),
    )


def _kv_pool() -> Iterator[Signal]:
    yield Signal(
        "kv_usage_last_ratio",
        "ratio",
        "KV pool held by live requests on the newest page.",
        Gauge(_KV_USAGE, "last"),
    )
    yield Signal(
        "kv_usage_mean_ratio", "ratio", "Mean share of the KV pool held by live requests.", Gauge(_KV_USAGE)
    )
    yield Signal(
        "kv_usage_peak_ratio",
        "ratio",
        "Highest share of the KV pool held in the window.",
        Gauge(_KV_USAGE, "max"),
    )
    yield Signal(
        "kv_usage_low_ratio",
        "ratio",
        "Lowest share of the KV pool held in the window.",
        Gauge(_KV_USAGE, "min"),
    )
    yield Signal(
        "kv_usage_recent_min_ratio",
        "ratio",
        "Lowest share of the KV pool held in the last 15 s.",
        Gauge(_KV_USAGE, "min", recent=True),
    )
    yield Signal(
        "kv_usage_change_ratio", "ratio", "Change of the held share over the window.", GaugeDelta(_KV_USAGE)
    )
    yield Signal("pool_tokens", "tokens", "Tokens the KV pool holds.", Fact("pool_tokens"))
    yield Signal(
        "fp8_pool_tokens",
        "tokens",
        "Tokens the same memory holds with an fp8 cache; unknown where the cache is quantised already.",
        Fact("fp8_pool_tokens"),
    )
    yield Signal(
        "pool_tokens_before_restart",
        "tokens",
        "Tokens the pool held before the last restart, configured alike.",
        Fact("pool_tokens_before_restart"),
    )
    yield Signal(
        "request_pool_ratio",
        "ratio",
        "Share of the pool that a mean request takes at its end, in whole blocks.",
        _request_room / Fact("pool_tokens"),
    )
    yield Signal(
        "requests_that_fit",
        "requests",
        "Mean requests the pool holds at once, each in whole blocks.",
        Fact("pool_tokens") / _request_room,
    )
    yield Signal(
        "gpu_memory_utilization_ratio",
        "ratio",
        "Share of the GPU's memory vLLM may take.",
        Label(_CONFIG, "gpu_memory_utilization"),
    )
    yield Signal(
        "block_size_tokens",
        "tokens",
        "Tokens a KV block holds: only whole blocks are shared.",
        Label(_CONFIG, "block_size"),
    )
    yield Signal(
        "match_unit_tokens",
        "tokens",
        "Tokens a prefix must share to hit, where it is coarser than a block (0.26 and later).",
        Label(_CONFIG, "prefix_match_unit"),
    )
    yield Signal(
        "blocks_override",
        "blocks",
        "KV blocks capped by hand (--num-gpu-blocks-override).",
        Label(_CONFIG, "num_gpu_blocks_override"),
    )
    yield Signal(
        "block_idle_before_evict_p50_seconds",
        "s",
        "Median time a cached block lay unused before it was evicted (--kv-cache-metrics).",
        Quantile(0.5, "vllm:kv_block_idle_before_evict_seconds"),
    )
    yield Signal(
        "kv_offload_stored_bytes",
        "bytes",
        "Bytes moved from the GPU to the offload medium.",
        Increase(_vllm("kv_offload_store_bytes_total")),
    )
    yield Signal(
        "kv_offload_loaded_bytes",
        "bytes",
        "Bytes moved back from the offload medium.",
        Increase(_vllm("kv_offload_load_bytes_total")),
    )


def _traffic() -> Iterator[Signal]:
    yield Signal("first_tokens", "requests", "Requests that got their first token.", _first_tokens)
    yield Signal("first_tokens_per_second", "1/s", "First tokens a second.", Rate(_FIRST_TOKENS))
    yield Signal("finished_requests", "requests", "Requests that finished.", _finished)
    yield Signal("finished_per_second", "1/s", "Requests finished a second.", Rate(_FINISHED))
    yield Signal(
        "arrivals_per_second",
        "1/s",
        "Requests that came, a second: first tokens plus the growth of the queue.",
        Bounded((_first_tokens + GaugeDelta(_WAITING)) / WindowSeconds(), lowest=0.0),
    )
    yield Signal(
        "first_tokens_lasting_per_second",
        "1/s",
        "First tokens a second in the weakest third of the window: a short burst leaves it low.",
        LastingRate(_FIRST_TOKENS),
    )
    yield Signal(
        "prompt_tokens_per_second",
        "tokens/s",
        "Prompt tokens of finished prefills a second.",
        Rate(_PROMPT_TOKENS),
    )
    yield Signal(
        "generation_tokens_per_second", "tokens/s", "Tokens generated a second.", Rate(_GENERATION_TOKENS)
    )
    yield Signal(
        "stream_tokens_per_second",
        "tokens/s",
        "Tokens generated a second for each request in the batch, those in their prefill included.",
        Rate(_GENERATION_TOKENS) / Gauge(_RUNNING),
    )
    yield Signal(
        "prompt_tokens_per_first_token",
        "tokens",
        "Prompt tokens of a mean request, known when its prefill ends.",
        _prompt_tokens_per_first_token,
    )
    yield Signal(
        "computed_prompt_tokens_per_request",
        "tokens",
        "Prompt tokens of a mean request that no cache supplied.",
        _computed_prompt_tokens,
    )
    yield Signal("prompt_tokens_mean", "tokens", "Mean prompt of the requests that finished.", _prompt_mean)
    yield Signal(
        "prompt_tokens_p50", "tokens", "Median prompt of the requests that finished.", Quantile(0.5, _PROMPT)
    )
    yield Signal("prompt_tokens_p99", "tokens", "99th percentile prompt.", Quantile(0.99, _PROMPT, 20.0))
    yield Signal("output_tokens_mean", "tokens", "Mean output of the requests that finished.", _output_mean)
    yield Signal("output_tokens_p99", "tokens", "99th percentile output.", Quantile(0.99, _OUTPUT, 20.0))
    yield Signal("request_tokens_mean", "tokens", "Mean prompt plus output.", _request_tokens)
    yield Signal(
        "request_tokens_p99",
        "tokens",
        "99th percentile prompt plus 99th percentile output: a bound, not a joint figure.",
        Quantile(0.99, _PROMPT, 20.0) + Quantile(0.99, _OUTPUT, 20.0),
    )
    yield Signal("window_seconds", "s", "Length of the window that was seen.", WindowSeconds())


def _latency() -> Iterator[Signal]:
    yield Signal("ttft_mean_seconds", "s", "Mean time to first token.", _ttft_mean)
    yield Signal("ttft_p50_seconds", "s", "Median time to first token.", Quantile(0.5, _TTFT))
    yield Signal("ttft_p95_seconds", "s", "95th percentile time to first token.", Quantile(0.95, _TTFT, 20.0))
    yield Signal("itl_mean_seconds", "s", "Mean inter-token latency.", Mean(_ITL, 50.0))
    yield Signal("itl_p50_seconds", "s", "Median inter-token latency.", Quantile(0.5, _ITL, 50.0))
    yield Signal("itl_p99_seconds", "s", "99th percentile inter-token latency.", Quantile(0.99, _ITL, 200.0))
    yield Signal(
        "itl_stall_ratio",
        "ratio",
        "Least share of inter-token time spent in gaps over 0.5 s and over five usual gaps.",
        TimeShareAbove(_ITL, _stall_bound),
    )
    yield Signal(
        "output_token_mean_seconds",
        "s",
        "Mean time per output token of finished requests: honest under speculative decoding.",
        Mean("vllm:request_time_per_output_token_seconds"),
    )
    yield Signal(
        "queue_mean_seconds",
        "s",
        "Mean time in the queue of the requests that finished: late while a queue grows.",
        Mean(_QUEUE),
    )
    yield Signal(
        "prefill_mean_seconds",
        "s",
        "Mean time from first scheduling to first token, of the requests that finished.",
        _prefill_mean,
    )
    yield Signal("decode_mean_seconds", "s", "Mean time from first to last token.", Mean(_DECODE))
    yield Signal("e2e_mean_seconds", "s", "Mean time from arrival to last token.", Mean(_E2E))
    yield Signal("e2e_p50_seconds", "s", "Median time from arrival to last token.", Quantile(0.5, _E2E))
    yield Signal(
        "e2e_p95_seconds", "s", "95th percentile time from arrival to last token.", Quantile(0.95, _E2E, 20.0)
    )
    yield Signal(
        "prefill_ttft_ratio",
        "ratio",
        "Prefill over time to first token.",
        Bounded(_prefill_mean / _ttft_mean, 0.0, 1.0),
    )
    yield Signal(
        "queue_ttft_ratio",
        "ratio",
        "What of the time to first token is not prefill: the queue, and the time before the engine.",
        Bounded(Constant(1.0) - _prefill_mean / _ttft_mean, 0.0, 1.0),
    )
    yield Signal(
        "booked_queue_ttft_ratio",
        "ratio",
        "Booked queue time over time to first token: reads low while a queue grows.",
        Bounded(Mean(_QUEUE) / _ttft_mean, 0.0, 1.0),
    )


def _prefix_cache() -> Iterator[Signal]:
    yield Signal(
        "prefix_queries_tokens", "tokens", "Prompt tokens looked up in the prefix cache.", _prefix_queries
    )
    yield Signal("prefix_hit_ratio", "ratio", "Share of them found; unknown below 1000 tokens.", _prefix_hits)
    yield Signal(
        "prefix_caching", "0 or 1", "Whether prefix caching is on.", Label(_CONFIG, "enable_prefix_caching")
    )
    yield Signal(
        "prefix_cached_tokens",
        "tokens",
        "Prompt tokens that no step computed, by the token counters.",
        Increase(_vllm("prompt_tokens_cached_total")),
    )
    yield Signal(
        "prefix_hit_tokens",
        "tokens",
        "Prompt tokens found, by the cache's own counter.",
        Increase(_vllm("prefix_cache_hits_total")),
    )
    yield Signal(
        "local_cache_hit_tokens",
        "tokens",
        "Prompt tokens from the local cache, by source.",
        Increase(_vllm("prompt_tokens_by_source_total", source="local_cache_hit")),
    )
    yield Signal(
        "miss_tokens_per_second",
        "tokens/s",
        "Prompt tokens a second that must be computed and take fresh blocks.",
        _miss_tokens_per_second,
    )
    yield Signal(
        "pool_turnover_seconds",
        "s",
        "Time until misses have written over the whole pool.",
        Fact("pool_tokens") / _miss_tokens_per_second,
    )
    yield Signal(
        "external_queries_tokens",
        "tokens",
        "Prompt tokens asked of the KV connector.",
        Increase(_vllm("external_prefix_cache_queries_total")),
    )
    yield Signal(
        "external_hit_tokens",
        "tokens",
        "Prompt tokens the KV connector supplied.",
        Increase(_vllm("external_prefix_cache_hits_total")),
    )
    yield Signal(
        "mm_cache_hit_ratio",
        "ratio",
        "Hits of the multi-modal processor cache.",
        Ratio(
            Increase(_vllm("mm_cache_hits_total")), Increase(_vllm("mm_cache_queries_total")), _LEAST_REQUESTS
        ),
    )
    yield Signal(
        "mm_cache_queries",
        "items",
        "Look-ups in the multi-modal processor cache.",
        Increase(_vllm("mm_cache_queries_total")),
    )


def _outcome() -> Iterator[Signal]:
    yield Signal(
        "error_finish_ratio",
        "ratio",
        "Finishes by error.",
        Ratio(_finishes_by["error"], _all_finishes, _LEAST_REQUESTS),
    )
    yield Signal(
        "abort_finish_ratio",
        "ratio",
        "Finishes booked as abort (never client disconnects, up to 0.33).",
        Ratio(_finishes_by["abort"], _all_finishes, _LEAST_REQUESTS),
    )
    yield Signal(
        "length_finish_ratio",
        "ratio",
        "Finishes by the token limit.",
        Ratio(_finishes_by["length"], _all_finishes, _LEAST_REQUESTS),
    )
    yield Signal(
        "vanished_requests",
        "requests",
        "First tokens less finishes and less the growth of the batch: requests whose clients left.",
        _first_tokens - _all_finishes - GaugeDelta(_RUNNING),
    )
    yield Signal(
        "http_5xx",
        "requests",
        "API answers of class 5xx.",
        IncreaseOrZero(
            Selector("http_requests_total", (("status", "5xx"),)), Selector("http_requests_total")
        ),
    )
    yield Signal(
        "http_5xx_ratio",
        "ratio",
        "Share of API answers of class 5xx.",
        Ratio(
            IncreaseOrZero(
                Selector("http_requests_total", (("status", "5xx"),)), Selector("http_requests_total")
            ),
            Increase(Selector("http_requests_total")),
            _LEAST_REQUESTS,
        ),
    )
    yield Signal(
        "rejections",
        "requests",
        "Requests refused by admission limits (0.32 and later).",
        Increase(_vllm("admission_rejections_total")),
    )
    yield Signal(
        "corrupted_requests",
        "requests",
        "Requests with NaN in their logits (VLLM_COMPUTE_NANS_IN_LOGITS=1).",
        Increase(_vllm("corrupted_requests_total")),
    )
    yield Signal(
        "kv_transfer_failures",
        "transfers",
        "Failed KV transfers, sent and received (NIXL or Mooncake).",
        SumOfKnown(
            Increase(_vllm("nixl_num_failed_transfers_total")),
            SumOfKnown(
                Increase(_vllm("mooncake_num_failed_transfers_total")),
                Increase(_vllm("mooncake_num_failed_recvs_total")),
            ),
        ),
    )
    yield Signal(
        "kv_leases_expired",
        "requests",
        "KV leases that ran out before the decode side came.",
        First(
            (
                Increase(_vllm("nixl_num_kv_expired_reqs_total")),
                Increase(_vllm("mooncake_num_kv_expired_reqs_total")),
            )
        ),
    )
    yield Signal(
        "kv_notices_after_expiry",
        "notices",
        "Completion notices that came after expiry.",
        Increase(_vllm("nixl_num_notifications_after_expiry_total")),
    )
    yield Signal(
        "draft_length_tokens",
        "tokens",
        "Tokens proposed in a mean draft: num_speculative_tokens as it is used.",
        Ratio(_drafted, Increase(_vllm("spec_decode_num_drafts_total")), _LEAST_REQUESTS),
    )
    yield Signal("drafted_tokens", "tokens", "Tokens proposed by the drafter.", _drafted)
    yield Signal(
        "draft_acceptance_ratio",
        "ratio",
        "Proposed tokens that were accepted; unknown below 500.",
        Ratio(Increase(_vllm("spec_decode_num_accepted_tokens_total")), _drafted, _LEAST_DRAFTED_TOKENS),
    )


def _told() -> Iterator[Signal]:
    yield Signal(
        "max_model_len", "tokens", "The longest prompt plus output the server takes.", Fact("max_model_len")
    )
    yield Signal(
        "expected_shared_prefix_tokens",
        "tokens",
        "Prefix that the owner says requests share.",
        Fact("expected_shared_prefix_tokens"),
    )
    yield Signal(
        "ttft_objective_seconds",
        "s",
        "The promised 95th percentile time to first token.",
        Fact("ttft_objective_seconds"),
    )
    yield Signal(
        "itl_objective_seconds",
        "s",
        "The promised 99th percentile inter-token latency.",
        Fact("itl_objective_seconds"),
    )
    yield Signal(
        "e2e_objective_seconds",
        "s",
        "The promised 95th percentile request time.",
        Fact("e2e_objective_seconds"),
    )
    yield Signal(
        "decode_ceiling_tokens_per_second",
        "tokens/s",
        "Memory bandwidth over weight bytes: the most one stream can get.",
        Fact("decode_ceiling_tokens_per_second"),
    )
    yield Signal(
        "single_stream_tokens_per_second",
        "tokens/s",
        "What one stream gets: the inverse of the median inter-token latency.",
        Constant(1.0) / Quantile(0.5, _ITL, 50.0),
    )
    yield Signal(
        "max_num_seqs",
        "requests",
        "The batch limit, where the owner told the launch arguments.",
        Fact("max_num_seqs"),
    )
    yield Signal(
        "max_num_batched_tokens",
        "tokens",
        "The step's token budget, where the owner told the launch arguments.",
        Fact("max_num_batched_tokens"),
    )
    yield Signal(
        "seconds_seen", "s", "How long this engine's present life was watched.", Fact("seconds_seen")
    )


def _target() -> Iterator[Signal]:
    yield Signal("failed_scrapes", "scrapes", "Scrapes that failed in a row.", Fact("failed_scrapes"))
    yield Signal(
        "failing_seconds",
        "s",
        "Time from the first failed scrape in a row to the last.",
        Fact("failing_seconds"),
    )
    yield Signal(
        "failure_refused", "0 or 1", "The last failure was a refused connection.", Fact("failure_refused")
    )
    yield Signal("failure_timeout", "0 or 1", "The last failure was a time-out.", Fact("failure_timeout"))
    yield Signal(
        "failure_connecting", "0 or 1", "The last failure came while connecting.", Fact("failure_connecting")
    )
    yield Signal(
        "failure_status", "code", "The HTTP status of the last failure that had one.", Fact("failure_status")
    )
    yield Signal(
        "failure_invalid",
        "0 or 1",
        "The last failure was of the page: a limit or the format.",
        Fact("failure_invalid"),
    )
    yield Signal("page_empty", "0 or 1", "The last answer was 200 with an empty body.", Fact("page_empty"))
    yield Signal(
        "page_not_metrics",
        "0 or 1",
        "The last answer was 200 with something that is no metrics page.",
        Fact("page_not_metrics"),
    )
    yield Signal(
        "page_series",
        "series",
        "Series on the page, those not read included where vLLM's are missing.",
        Fact("page_series"),
    )
    yield Signal("page_vllm_series", "series", "vLLM's series on the page.", Fact("page_vllm_series"))
    yield Signal(
        "seconds_without_vllm",
        "s",
        "Time since a page last had series of vLLM, while pages came.",
        Fact("seconds_without_vllm"),
    )
    yield Signal("vllm_seen", "0 or 1", "Whether this address ever had series of vLLM.", Fact("vllm_seen"))
    yield Signal(
        "page_without_vllm_has_http",
        "0 or 1",
        "A page without vLLM's series has those of its HTTP layer.",
        Fact("page_without_vllm_has_http"),
    )
    yield Signal(
        "page_of_other_program",
        "0 or 1",
        "A page without vLLM's series is that of another program known by its metric names.",
        Fact("page_of_other_program"),
    )
    yield Signal(
        "page_python_alone",
        "0 or 1",
        "A page without vLLM's series has only what the Python client shows by itself.",
        Fact("page_python_alone"),
    )
    yield Signal(
        "answered_generations",
        "requests",
        "Completions and chat completions that the API answered with 2xx.",
        SumOfKnown(*(Increase(_answers(handler)) for handler in ("/v1/chat/completions", "/v1/completions"))),
    )
    yield Signal(
        "first_tokens_ever", "requests", "First tokens counted since the start.", Gauge(_FIRST_TOKENS, "last")
    )
    yield Signal(
        "prompt_tokens_ever",
        "tokens",
        "Prompt tokens counted since the start.",
        Gauge(_PROMPT_TOKENS, "last"),
    )
    yield Signal("restarts", "restarts", "Restarts in the last 30 minutes.", Fact("restarts"))
    yield Signal(
        "seconds_since_restart",
        "s",
        "Time since the last restart that was seen.",
        Fact("seconds_since_restart"),
    )
    yield Signal(
        "counter_jumps",
        "jumps",
        "Falls of counters in the last two minutes that came back: two servers behind one address.",
        Fact("counter_jumps"),
    )
    yield Signal("blind_rules", "rules", "Rules that need series this page lacks.", Fact("blind_rules"))


def _engines() -> Iterator[Signal]:
    yield Signal("engines", "engines", "Engines of one server.", Fact("engines"))
    yield Signal(
        "engines_first_tokens",
        "requests",
        "Requests that got their first token on any engine.",
        Fact("engines_first_tokens"),
    )
    yield Signal(
        "least_engine_share_ratio",
        "ratio",
        "Share of the requests (or else tokens) that the least used engine did.",
        Fact("least_engine_share_ratio"),
    )
    yield Signal(
        "greatest_engine_share_ratio",
        "ratio",
        "Share that the most used engine did.",
        Fact("greatest_engine_share_ratio"),
    )
    yield Signal(
        "engine_running_greatest",
        "requests",
        "Mean batch of the fullest engine.",
        Fact("engine_running_greatest"),
    )
    yield Signal(
        "engine_running_mean", "requests", "Mean batch over the engines.", Fact("engine_running_mean")
    )
    yield Signal(
        "engine_running_least", "requests", "Mean batch of the emptiest engine.", Fact("engine_running_least")
    )
    yield Signal(
        "engine_waiting_greatest",
        "requests",
        "Longest standing queue among the engines.",
        Fact("engine_waiting_greatest"),
    )
    yield Signal(
        "engine_waiting_least",
        "requests",
        "Shortest standing queue among the engines.",
        Fact("engine_waiting_least"),
    )
    yield Signal(
        "engine_kv_usage_least_ratio",
        "ratio",
        "Mean KV usage of the engine whose pool is emptiest.",
        Fact("engine_kv_usage_least_ratio"),
    )
    yield Signal("targets", "targets", "Targets that serve one model and answer.", Fact("targets"))
    yield Signal(
        "hit_ratio_spread",
        "ratio",
        "Best less worst prefix hit ratio among the targets of a model.",
        Fact("hit_ratio_spread"),
    )


CATALOGUE: Mapping[str, Signal] = MappingProxyType({signal.name: signal for signal in _signals()})


def signal_names() -> frozenset[str]:
    """All names a clause may use: each signal, and each with `_baseline` for the time before now."""
    return frozenset(CATALOGUE) | frozenset(name + BASELINE for name in CATALOGUE)


def formula(name: str) -> Node:
    """The node of a signal or of its baseline. Raises KeyError for an unknown name."""
    signal = CATALOGUE.get(name)
    return signal.node if signal else Baseline(CATALOGUE[name.removesuffix(BASELINE)].node)


def lookup_of(view: View) -> Lookup:
    """Looks up the signals of one engine at one moment by name: each is computed when asked for, once.

    None is unknown; a name that is none raises KeyError.
    """
    # Rules ask hundreds of times a step: a dictionary's own method answers in a quarter of the time of a function.
    return _Signals(view).__getitem__


class _Signals(dict[str, float | None]):
    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    def __missing__(self, name: str) -> float | None:
        value = self[name] = _FORMULAS[name].evaluate(self._view)
        return value


_FORMULAS: dict[str, Node] = {name: formula(name) for name in signal_names()}
_METRICS = {name: node.metrics() for name, node in _FORMULAS.items()}


def metrics_of(name: str) -> frozenset[str]:
    """The canonical metric names a signal is read from; empty for what is not on the page. KeyError if unknown."""
    return _METRICS[name]
