"""Every signal that a rule may name: its unit, what it says, and its formula. A fact is a signal by its own name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType

from watchdog.facts.declared import DECLARED
from watchdog.facts.server import POOL_TOKENS
from watchdog.facts.watching import OPEN_FILES_DROP_SEEN
from watchdog.history.layout import Selector
from watchdog.history.number import Bound
from watchdog.history.span import Span, as_now
from watchdog.history.stretches import Likeness
from watchdog.model import Lookup
from watchdog.signals.functions import (
    Formula,
    Value,
    View,
    age,
    bounded,
    change,
    climb,
    constant,
    ever_moved,
    fact,
    first,
    greatest_third,
    highest,
    increase,
    increase_of_any,
    increase_or_zero,
    label,
    label_names,
    label_number,
    lasting_climb,
    lasting_rate,
    lately,
    leading_above,
    lowest,
    mean,
    mean_over_time,
    mean_while,
    names_in_window,
    newest,
    newest_label,
    per_request,
    quantile,
    rate,
    ratio,
    released_since,
    seconds_since_below,
    server_age,
    share_of_time,
    slope,
    time_share_above,
    whole_steps,
    widened_window_seconds,
    window_seconds,
)
from watchdog.signals.past import BASELINE, LATELY, LOWEST, SINCE_START, Past
from watchdog.signals.promql import NoPromQL


@dataclass(frozen=True, slots=True)
class Signal:
    """A named number: `unit` in words, `description` in one sentence, `formula` how it is computed."""

    name: str
    unit: str
    description: str
    formula: Formula


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a remembered signal is compared with when `_` and this name stand behind its own."""

    name: str
    description: str


COMPARISONS: Mapping[str, Comparison] = MappingProxyType(
    {
        one.name: one
        for one in (
            Comparison(
                BASELINE,
                "the median over the newest calm stretches of the past in which the load was like now's, within the "
                "factors that the rule names under `like` (whatever the load was, where it names none)",
            ),
            Comparison(
                LATELY,
                "the median over the two newest calm stretches of the past (15 s to a minute each), whatever the load "
                "was then, also where the rule names what is alike",
            ),
            Comparison(LOWEST, "the least that the calm stretches of up to eight hours had"),
        )
    }
)


@cache
def _vllm(metric: str, **labels: str) -> Selector:
    return Selector(f"vllm:{metric}", tuple(labels.items()))


@cache
def _process(metric: str, **labels: str) -> Selector:
    return Selector(metric, tuple(labels.items()))


RUNNING = _vllm("num_requests_running")
WAITING = _vllm("num_requests_waiting")
DEFERRED = _vllm("num_requests_waiting_by_reason", reason="deferred")
KV_USAGE = _vllm("kv_cache_usage_perc")
PREEMPTIONS = _vllm("num_preemptions_total")
STEPS = _vllm("iteration_tokens_total_count")
STEP_TOKENS = _vllm("iteration_tokens_total_sum")
FIRST_TOKENS = _vllm("time_to_first_token_seconds_count")
PROMPT_TOKENS = _vllm("prompt_tokens_total")
GENERATION_TOKENS = _vllm("generation_tokens_total")
COMPUTED_TOKENS = _vllm("prompt_tokens_by_source_total", source="local_compute")
LOCAL_HIT_TOKENS = _vllm("prompt_tokens_by_source_total", source="local_cache_hit")
PREFIX_QUERIES = _vllm("prefix_cache_queries_total")
PREFIX_HITS = _vllm("prefix_cache_hits_total")
MM_QUERIES = _vllm("mm_cache_queries_total")
MM_HITS = _vllm("mm_cache_hits_total")
FINISHED = _vllm("request_success_total")
DRAFTED = _vllm("spec_decode_num_draft_tokens_total")
DRAFTS = _vllm("spec_decode_num_drafts_total")
# vLLM counts accepted tokens by their position in the draft, from 0. Longer drafts than this are not in use.
DRAFT_POSITIONS = [
    _vllm("spec_decode_num_accepted_tokens_per_pos_total", position=str(position)) for position in range(16)
]
CONFIG = _vllm("cache_config_info")
AWAKE = _vllm("engine_sleep_state", sleep_state="awake")
LORA = _vllm("lora_requests_info")
OPEN_FILES = _process("process_open_fds")
HOST_MEMORY = _process("process_resident_memory_bytes")
ANSWERS = _process("http_requests_total")
ANSWERS_5XX = _process("http_requests_total", status="5xx")
CHAT, COMPLETIONS = (
    _process("http_requests_total", handler=handler, method="POST", status="2xx")
    for handler in ("/v1/chat/completions", "/v1/completions")
)
# The answers of handlers that generate, as far as they are counted by handler.
GENERATIONS = (
    CHAT,
    COMPLETIONS,
    *(
        _process("http_requests_total", handler=handler, method="POST", status="2xx")
        for handler in ("/v1/responses", "/v1/messages")
    ),
)
PROGRESS = (STEPS, PROMPT_TOKENS, GENERATION_TOKENS, FIRST_TOKENS)

TTFT = "vllm:time_to_first_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
QUEUE = "vllm:request_queue_time_seconds"
PREFILL = "vllm:request_prefill_time_seconds"
DECODE = "vllm:request_decode_time_seconds"
E2E = "vllm:e2e_request_latency_seconds"
PROMPT = "vllm:request_prompt_tokens"
OUTPUT = "vllm:request_generation_tokens"
PROMPT_SUM, OUTPUT_SUM = _vllm("request_prompt_tokens_sum"), _vllm("request_generation_tokens_sum")

# A ratio of few tokens or requests says nothing: 1000 tokens, 10 requests for a share, 5 for a mean.
LEAST_TOKENS, LEAST_DRAFTED_TOKENS, LEAST_REQUESTS = 1000.0, 500.0, 10.0
# A drafted token that is used less often than this costs about what it saves: it is drafted, and checked in the batch.
LEAST_ACCEPTED_SHARE, LEAST_DRAFTS = 0.3, 100.0
# Of tokens that were generated: two answers of usual length.
LEAST_GENERATED_TOKENS = 300.0

# Parts that several signals share.
_pool = fact(POOL_TOKENS)
_hit_ratio = ratio(increase(PREFIX_HITS), increase(PREFIX_QUERIES), LEAST_TOKENS)
_miss_rate = rate(PROMPT_TOKENS) * (1.0 - _hit_ratio)
# Three long prompts in the window are enough to see their length; an average of one is not.
_prompt_of_first = ratio(increase(PROMPT_TOKENS), increase(FIRST_TOKENS), 3.0)
_prompt_mean = first(mean(PROMPT), _prompt_of_first)
_output_mean = first(mean(OUTPUT), ratio(increase(GENERATION_TOKENS), increase(FIRST_TOKENS), 5.0))
# A request holds whole blocks: 149 tokens in blocks of 256 take 256.
_request_room = whole_steps(_prompt_mean + _output_mean, label(CONFIG, "block_size"))
# Where the pool is unknown, what running requests hold tells what one takes at its end: on average half of its output
# is still to come.
_held_by_request = mean_over_time(KV_USAGE) / mean_over_time(RUNNING)
_share_at_end = _held_by_request * (
    (_prompt_mean + _output_mean) / (_prompt_mean + _output_mean * constant(0.5))
)
_prefill_of_ttft = mean(PREFILL) / mean(TTFT)
_usual_gap, _usual_prompt = quantile(0.5, ITL), quantile(0.5, PROMPT)


def _beyond(usual: Formula, factor: float, least: float) -> Value:
    """So many times the window's usual value, and never less than `least`; None where that is not known exactly."""

    def value(view: View) -> float | None:
        found = usual.value(view)
        return None if isinstance(found, Bound) else max(least, factor * (found or 0.0))

    return value


# Half a second is a gap that a reader of a stream notices: streams run ahead of readers, and a prompt of a few thousand
# tokens is a gap of 0.3 s on many a healthy GPU. Where gaps of 0.3 s are many they are noticed too.
_stall = _beyond(_usual_gap, 5.0, 0.5)
_hitch = _beyond(_usual_gap, 20.0, 0.3)
_long_prompt = _beyond(_usual_prompt, 5.0, 2000.0)
_drafted_share = ratio(increase(DRAFTED), increase(GENERATION_TOKENS), LEAST_GENERATED_TOKENS)
_vanished = increase(FIRST_TOKENS) - increase(FINISHED) - change(RUNNING)


def _finished_by(reason: str) -> Formula:
    # Some reasons have a series only once a request ended for them.
    return increase_or_zero(_vllm("request_success_total", finished_reason=reason), FINISHED)


# fmt: off
SIGNALS = (
    # The scheduler: batch and queue
    Signal("running_last", "requests", "Requests in the batch on the newest page.", newest(RUNNING)),
    Signal("running_mean", "requests", "Average requests in the batch.", mean_over_time(RUNNING)),
    Signal("running_max", "requests", "Most requests in the batch in the window.", highest(RUNNING)),
    Signal("running_recent_max", "requests", "Most requests in the batch in the last 10 s.",
           highest(RUNNING, "recent")),
    Signal("running_recent_min", "requests", "Fewest requests in the batch in the last 10 s.",
           lowest(RUNNING, "recent")),
    Signal("running_peak", "requests", "Most requests in the batch seen in this engine's life, up to 11 minutes back.",
           highest(RUNNING, "life")),
    Signal("running_while_waiting", "requests", "Average requests in the batch while others wait.",
           mean_while(RUNNING, WAITING)),
    Signal("running_share_of_time", "ratio", "Share of the window in which something ran.", share_of_time(RUNNING)),
    Signal("waiting_last", "requests", "Requests in the queue on the newest page.", newest(WAITING)),
    Signal("waiting_mean", "requests", "Average requests in the queue.", mean_over_time(WAITING)),
    Signal("waiting_max", "requests", "Longest queue in the window.", highest(WAITING)),
    Signal("waiting_recent_min", "requests", "Shortest queue in the last 10 s: above 0 the queue never emptied.",
           lowest(WAITING, "recent")),
    Signal("waiting_share_of_time", "ratio", "Share of the window in which something waited.", share_of_time(WAITING)),
    Signal("waiting_slope_per_second", "requests/s", "How fast the queue grows; negative while it drains.",
           slope(WAITING)),
    Signal("deferred_ratio", "ratio",
           "Share of the queue held back by LoRA slots, grammar or remote KV (0.20 and later).",
           ratio(mean_over_time(DEFERRED), mean_over_time(WAITING), 0.5)),
    Signal("preemptions", "preemptions", "Requests preempted because KV blocks ran out.",
           increase(PREEMPTIONS)),
    Signal("preemptions_per_second", "1/s", "Preemptions per second.", rate(PREEMPTIONS)),
    Signal("lora_running_adapters", "adapters", "Adapters in the batch now.",
           newest_label(LORA, "running_lora_adapters", label_names)),
    Signal("lora_waiting_adapters", "adapters", "Adapters that wait now.",
           newest_label(LORA, "waiting_lora_adapters", label_names)),
    Signal("lora_adapters", "adapters", "Different adapters named on the page in the window, in the batch or waiting.",
           names_in_window(LORA, "running_lora_adapters", "waiting_lora_adapters")),
    Signal("lora_slots", "adapters", "Adapters that fit in one batch (--max-loras).",
           newest_label(LORA, "max_lora", label_number)),

    # Progress
    Signal("seconds_since_progress", "s", "Time since a step ended or a token counter moved.", age(*PROGRESS)),
    Signal("server_seconds_since_progress", "s",
           "The same over all engines of the server: what its process shows may be due to any of them.",
           server_age(*PROGRESS)),
    Signal("steps_per_second", "1/s", "Engine steps per second.", rate(STEPS)),
    Signal("tokens_per_step", "tokens",
           "Tokens counted in an average step (a whole prompt counts in the step that ends it).",
           ratio(increase(STEP_TOKENS), increase(STEPS), 10.0)),
    Signal("prompt_tokens_per_step", "tokens",
           "Prompt tokens over steps: the chunk of prefill a step really takes.",
           ratio(increase(PROMPT_TOKENS), increase(STEPS), 10.0)),
    Signal("open_files", "files", "Open files of the API server process.", newest(OPEN_FILES)),
    Signal("open_files_limit", "files", "Most files the API server process may open at once (ulimit -n).",
           newest(_process("process_max_fds"))),
    Signal("open_files_recent_max", "files", "Most open files of the API server process in the last 10 s.",
           highest(OPEN_FILES, "recent")),
    Signal("open_files_climb", "files",
           "How far the API server's open files rose above their lowest in the window: a stuck connection is one.",
           climb(OPEN_FILES)),
    Signal("open_files_lasting_climb", "files",
           "The smaller climb of the window's last two thirds: connections that open once and stay leave it at 0.",
           lasting_climb(OPEN_FILES)),
    Signal("open_files_drop", "files",
           "Open files closed as progress stopped, beyond those of requests that left batch and queue: clients gone.",
           first(released_since(OPEN_FILES, (RUNNING, WAITING), PROGRESS), fact(OPEN_FILES_DROP_SEEN))),
    Signal("api_server_cpu_ratio", "cores", "CPU the API server process takes.",
           rate(_process("process_cpu_seconds_total"))),
    Signal("awake_ratio", "ratio", "1 while the engine is awake, 0 while it sleeps.",
           newest(AWAKE)),
    Signal("seconds_since_sleep", "s", "Time since a page on which the engine slept, or was about to wake.",
           seconds_since_below(AWAKE, 1.0)),
    Signal("weight_updates_in_flight", "operations", "Online weight updates in progress: a pause on purpose.",
           newest(_vllm("rl_weight_update_operations_in_flight"))),

    # The KV cache
    Signal("kv_usage_last_ratio", "ratio", "KV cache held by live requests on the newest page.", newest(KV_USAGE)),
    Signal("kv_usage_mean_ratio", "ratio", "Mean share of the KV cache held by live requests.",
           mean_over_time(KV_USAGE)),
    Signal("kv_usage_peak_ratio", "ratio", "Highest share of the KV cache held in the window.", highest(KV_USAGE)),
    Signal("kv_usage_low_ratio", "ratio", "Lowest share of the KV cache held in the window.", lowest(KV_USAGE)),
    Signal("kv_usage_recent_min_ratio", "ratio", "Lowest share of the KV cache held in the last 10 s.",
           lowest(KV_USAGE, "recent")),
    Signal("kv_usage_change_ratio", "ratio", "Change of the held share over the window.", change(KV_USAGE)),
    Signal("kv_usage_per_request_ratio", "ratio", "Share of the KV cache a running request uses, on average.",
           _held_by_request),
    Signal("request_pool_ratio", "ratio", "Share of the KV cache an average request uses at its end, in whole blocks.",
           first(_request_room / _pool, _share_at_end)),
    Signal("requests_that_fit", "requests", "Average requests the KV cache has room for, in whole blocks.",
           first(_pool / _request_room, 1.0 / _share_at_end)),
    Signal("unfinished_tokens", "tokens",
           "Tokens of requests that had their first token and did not finish, since the start: where clients left, "
           "theirs as well.",
           newest(PROMPT_TOKENS) + newest(GENERATION_TOKENS) - newest(PROMPT_SUM) - newest(OUTPUT_SUM)),
    Signal("unfinished_requests", "requests", "The requests that hold them.", newest(FIRST_TOKENS) - newest(FINISHED)),
    Signal("gpu_memory_utilization_ratio", "ratio", "Share of the GPU's memory vLLM may take.",
           label(CONFIG, "gpu_memory_utilization")),
    Signal("block_size_tokens", "tokens", "Tokens a KV block holds: only whole blocks are shared.",
           label(CONFIG, "block_size")),
    Signal("match_unit_tokens", "tokens",
           "Tokens a prefix must share to hit, where it is coarser than a block (0.26 and later).",
           label(CONFIG, "prefix_match_unit")),
    Signal("blocks_override", "blocks", "KV blocks capped by hand (--num-gpu-blocks-override).",
           label(CONFIG, "num_gpu_blocks_override")),
    Signal("block_idle_before_evict_p50_seconds", "s",
           "Median time a cached block lay unused before it was evicted (--kv-cache-metrics).",
           quantile(0.5, "vllm:kv_block_idle_before_evict_seconds")),
    Signal("kv_offload_stored_bytes", "bytes", "Bytes moved from the GPU to the offload medium.",
           increase(_vllm("kv_offload_store_bytes_total"))),
    Signal("kv_offload_loaded_bytes", "bytes", "Bytes moved back from the offload medium.",
           increase(_vllm("kv_offload_load_bytes_total"))),
    Signal("kv_offload_load_bytes_per_second", "bytes/s",
           "How fast blocks come back from the offload medium while they are loaded.",
           ratio(increase(_vllm("kv_offload_load_bytes_total")), increase(_vllm("kv_offload_load_time_total")))),
    Signal("kv_offload_stores_skipped", "stores", "Blocks not offloaded for lack of room or time.",
           increase(_vllm("kv_offload_stores_skipped_total"))),
    Signal("kv_offload_allocation_failures", "failures", "Times the offload medium had no room for a block.",
           increase(_vllm("kv_offload_allocation_failure_total"))),
    Signal("kv_offload_stores_dropped", "stores", "Stores dropped because a lower tier of the offload was too slow.",
           increase(_vllm("kv_offload_tiering_backpressure_stores_dropped_total"))),
    Signal("kv_offload_tier_failures", "jobs", "Moves between tiers of the offload that failed, up or down.",
           increase_of_any(_vllm("kv_offload_tiering_promotion_job_failures_total"),
                           _vllm("kv_offload_tiering_promotion_allocation_failures_total"),
                           _vllm("kv_offload_tiering_cascade_job_failures_total"))),
    Signal("kv_store_failures", "operations", "Reads and writes of a KV store that failed (Mooncake, 3FS, UMBP).",
           increase_of_any(_vllm("mooncake_store_operation_failed_keys_total"), _vllm("hf3fs_num_failed_load_total"),
                           _vllm("hf3fs_num_failed_save_total"), _vllm("umbp_transfer_failed_total"))),
    Signal("kv_fetch_recent_min", "requests",
           "Fewest requests in the last 10 s whose KV was being fetched, at any stage: above 0 there always were some.",
           lowest(_vllm("num_requests_kv_fetch_by_stage"), "recent")),

    # Traffic
    Signal("window_seconds", "s", "Length of the window that was seen.",
           window_seconds().without_promql("in PromQL the window is what you write, not what was seen")),
    Signal("first_tokens", "requests", "Requests that got their first token.", increase(FIRST_TOKENS)),
    Signal("request_window_first_tokens", "requests",
           "The same over the window of figures per request, which widens to up to three minutes where under ten came.",
           increase(FIRST_TOKENS)),
    Signal("widened_window_seconds", "s",
           "Length of the window of figures per request where it is wider than that of now; else unknown.",
           widened_window_seconds()),
    Signal("first_tokens_per_second", "1/s", "First tokens per second.", rate(FIRST_TOKENS)),
    Signal("first_tokens_lasting_per_second", "1/s",
           "First tokens per second in the weakest third of the window: a short burst leaves it low.",
           lasting_rate(FIRST_TOKENS)),
    Signal("first_tokens_ever", "requests", "First tokens counted since the start.", newest(FIRST_TOKENS)),
    Signal("finished_requests", "requests", "Requests that finished.", increase(FINISHED)),
    Signal("finished_per_second", "1/s", "Completions per second.", rate(FINISHED)),
    Signal("arrivals_per_second", "1/s", "Arrivals per second: first tokens plus queue growth.",
           bounded((increase(FIRST_TOKENS) + change(WAITING)) / window_seconds(), 0.0)),
    Signal("answered_generations", "requests", "Completions and chat completions that the API answered with 2xx.",
           increase_of_any(CHAT, COMPLETIONS)),
    Signal("prompt_tokens_per_second", "tokens/s", "Prompt tokens prefilled per second.", rate(PROMPT_TOKENS)),
    Signal("prompt_tokens_ever", "tokens", "Prompt tokens counted since the start.", newest(PROMPT_TOKENS)),
    Signal("generation_tokens_per_second", "tokens/s", "Tokens generated per second.", rate(GENERATION_TOKENS)),
    Signal("stream_tokens_per_second", "tokens/s",
           "Tokens generated per second for each request in the batch, those in their prefill included.",
           rate(GENERATION_TOKENS) / mean_over_time(RUNNING)),
    Signal("prompt_tokens_per_first_token", "tokens", "Average prompt tokens, known when a prefill ends.",
           _prompt_of_first),
    Signal("computed_prompt_tokens_per_request", "tokens", "Prompt tokens of a request that no cache supplied.",
           first(ratio(increase(COMPUTED_TOKENS), increase(FIRST_TOKENS), 3.0),
                 mean("vllm:request_prefill_kv_computed_tokens", 3.0),
                 _prompt_of_first * (1.0 - _hit_ratio),
                 _prompt_of_first)),
    Signal("prompt_tokens_mean", "tokens", "Average prompt of the completed requests.", _prompt_mean),
    Signal("prompt_tokens_p50", "tokens", "Median prompt of the requests that finished.", quantile(0.5, PROMPT)),
    Signal("prompt_tokens_p99", "tokens", "99th percentile prompt.", quantile(0.99, PROMPT, 20.0)),
    Signal("long_prompt_token_ratio", "ratio",
           "Least share of the prompt tokens that came in prompts over 2,000 tokens and over five usual prompts.",
           time_share_above(PROMPT, _long_prompt, 1000.0)),
    Signal("output_tokens_mean", "tokens", "Mean output of the requests that finished.", _output_mean),
    Signal("requested_output_tokens_mean", "tokens", "Mean `max_tokens` of the requests that finished.",
           mean("vllm:request_params_max_tokens")),
    Signal("requested_choices_mean", "choices", "Mean `n` of the requests that finished: answers asked of one prompt.",
           mean("vllm:request_params_n")),
    Signal("output_tokens_p99", "tokens", "99th percentile output.", quantile(0.99, OUTPUT, 20.0)),
    Signal("request_tokens_mean", "tokens", "Average prompt plus output.", _prompt_mean + _output_mean),
    Signal("request_tokens_p99", "tokens",
           "99th percentile prompt plus 99th percentile output: a bound, not a joint figure.",
           quantile(0.99, PROMPT, 20.0) + quantile(0.99, OUTPUT, 20.0)),

    # Latency
    Signal("ttft_mean_seconds", "s", "Mean time to first token.", mean(TTFT)),
    Signal("ttft_p50_seconds", "s", "Median time to first token.", quantile(0.5, TTFT)),
    Signal("ttft_p95_seconds", "s", "95th percentile time to first token.", quantile(0.95, TTFT, 20.0)),
    Signal("itl_mean_seconds", "s", "Mean inter-token latency.", mean(ITL, 50.0)),
    Signal("itl_p10_seconds", "s",
           "10th percentile inter-token latency: the steps that carry no prefill, which load moves least.",
           quantile(0.1, ITL, 50.0)),
    Signal("itl_p50_seconds", "s", "Median inter-token latency.", quantile(0.5, ITL, 50.0)),
    Signal("itl_p99_seconds", "s", "99th percentile inter-token latency.", quantile(0.99, ITL, 200.0)),
    Signal("itl_stall_ratio", "ratio",
           "Least share of inter-token time spent in gaps over 0.5 s and over five usual gaps.",
           time_share_above(ITL, _stall)),
    Signal("itl_hitch_ratio", "ratio",
           "Least share of inter-token time spent in gaps over 0.3 s and over twenty usual gaps.",
           time_share_above(ITL, _hitch)),
    Signal("single_stream_tokens_per_second", "tokens/s",
           "What one stream gets: the inverse of the median inter-token latency.", 1.0 / quantile(0.5, ITL, 50.0)),
    Signal("output_token_mean_seconds", "s",
           "Mean time per output token of finished requests: honest under speculative decoding.",
           mean("vllm:request_time_per_output_token_seconds")),
    Signal("queue_mean_seconds", "s", "Mean time in the queue of the requests that finished: late while a queue grows.",
           mean(QUEUE)),
    Signal("prefill_mean_seconds", "s",
           "Mean time from first scheduling to first token, of the requests that finished.", mean(PREFILL)),
    Signal("decode_mean_seconds", "s", "Mean time from first to last token.", mean(DECODE)),
    Signal("e2e_mean_seconds", "s", "Mean time from arrival to last token.", mean(E2E)),
    Signal("e2e_p50_seconds", "s", "Median time from arrival to last token.", quantile(0.5, E2E)),
    Signal("e2e_p95_seconds", "s", "95th percentile time from arrival to last token.", quantile(0.95, E2E, 20.0)),
    Signal("prefill_ttft_ratio", "ratio", "Prefill over time to first token.", bounded(_prefill_of_ttft, 0.0, 1.0)),
    Signal("queue_ttft_ratio", "ratio",
           "The part of time to first token that is not prefill: the queue, and the time before the engine.",
           bounded(1.0 - _prefill_of_ttft, 0.0, 1.0)),
    Signal("booked_queue_ttft_ratio", "ratio",
           "Recorded queue time over time to first token: reads low while a queue grows.",
           bounded(mean(QUEUE) / mean(TTFT), 0.0, 1.0)),

    # Caches
    Signal("prefix_queries_tokens", "tokens", "Prompt tokens looked up in the prefix cache.", increase(PREFIX_QUERIES)),
    Signal("prefix_hit_ratio", "ratio", "Share of them found; unknown below 1000 tokens.", _hit_ratio),
    Signal("prefix_queries_tokens_ever", "tokens", "Prompt tokens looked up since the start.", newest(PREFIX_QUERIES)),
    Signal("prefix_hit_tokens_ever", "tokens", "Prompt tokens found since the start.", newest(PREFIX_HITS)),
    Signal("prefix_caching", "0 or 1",
           "Whether prefix caching is on; where no label says so, whether anything was ever looked up.",
           first(label(CONFIG, "enable_prefix_caching"), ever_moved(PREFIX_QUERIES, FIRST_TOKENS, LEAST_REQUESTS))),
    Signal("prefix_cached_tokens", "tokens", "Prompt tokens that no step computed, by the token counters.",
           increase(_vllm("prompt_tokens_cached_total"))),
    Signal("prefix_hit_tokens", "tokens", "Prompt tokens found, by the cache's own counter.", increase(PREFIX_HITS)),
    Signal("prefix_hit_tokens_per_second", "tokens/s", "The same, per second.", rate(PREFIX_HITS)),
    Signal("local_cache_hit_tokens", "tokens", "Prompt tokens from the local cache, by source.",
           increase(LOCAL_HIT_TOKENS)),
    Signal("miss_tokens_per_second", "tokens/s", "Prompt tokens per second to compute into fresh blocks.",
           _miss_rate),
    Signal("pool_turnover_seconds", "s", "Time until misses have written over the whole pool.", _pool / _miss_rate),
    Signal("external_queries_tokens", "tokens", "Prompt tokens asked of the KV connector.",
           increase(_vllm("external_prefix_cache_queries_total"))),
    Signal("external_hit_tokens", "tokens", "Prompt tokens the KV connector supplied.",
           increase(_vllm("external_prefix_cache_hits_total"))),
    Signal("mm_cache_queries", "items", "Look-ups in the multi-modal processor cache.", increase(MM_QUERIES)),
    Signal("mm_cache_hit_ratio", "ratio", "Hits of the multi-modal processor cache.",
           ratio(increase(MM_HITS), increase(MM_QUERIES), LEAST_REQUESTS)),

    # How requests end
    Signal("error_finish_ratio", "ratio", "Finishes by error.",
           ratio(_finished_by("error"), increase(FINISHED), LEAST_REQUESTS)),
    Signal("abort_finish_ratio", "ratio", "Completions counted as abort (never client disconnects, up to 0.33).",
           ratio(_finished_by("abort"), increase(FINISHED), LEAST_REQUESTS)),
    Signal("length_finish_ratio", "ratio", "Finishes by the token limit.",
           ratio(_finished_by("length"), increase(FINISHED), LEAST_REQUESTS)),
    Signal("vanished_requests", "requests",
           "First tokens less finishes and less the growth of the batch: requests whose clients left.",
           _vanished),
    Signal("vanished_at_once", "requests", "The most that vanished in one third of the window.",
           greatest_third(_vanished)),
    Signal("http_5xx", "requests", "API answers of class 5xx.", increase_or_zero(ANSWERS_5XX, ANSWERS)),
    Signal("http_5xx_ratio", "ratio", "Share of API answers of class 5xx.",
           ratio(increase_or_zero(ANSWERS_5XX, ANSWERS), increase(ANSWERS, appear=True), LEAST_REQUESTS)),
    Signal("rejections", "requests", "Requests refused by admission limits (0.32 and later).",
           increase(_vllm("admission_rejections_total"))),
    Signal("corrupted_requests", "requests", "Requests with NaN in their logits (VLLM_COMPUTE_NANS_IN_LOGITS=1).",
           increase(_vllm("corrupted_requests_total"))),
    Signal("kv_transfers_per_second", "1/s",
           "KV transfers from another server per second (NIXL or Mooncake); unknown without such a connector.",
           increase_of_any(_vllm("nixl_xfer_time_seconds_count"), _vllm("mooncake_xfer_time_seconds_count"))
           / window_seconds()),
    Signal("kv_transfer_failures", "transfers", "Failed KV transfers, sent and received (NIXL or Mooncake).",
           increase_of_any(_vllm("nixl_num_failed_transfers_total"), _vllm("mooncake_num_failed_transfers_total"),
                           _vllm("mooncake_num_failed_recvs_total"))),
    Signal("kv_leases_expired", "requests", "KV leases that expired before the decode side fetched the KV.",
           first(increase(_vllm("nixl_num_kv_expired_reqs_total")),
                 increase(_vllm("mooncake_num_kv_expired_reqs_total")))),
    Signal("kv_notices_after_expiry", "notices", "Completion notices that came after expiry.",
           increase(_vllm("nixl_num_notifications_after_expiry_total"))),

    # Speculative decoding
    Signal("draft_length_tokens", "tokens",
           "Tokens proposed in an average draft: num_speculative_tokens as it is used.",
           ratio(increase(DRAFTED), increase(DRAFTS), LEAST_REQUESTS)),
    Signal("drafted_tokens", "tokens", "Tokens proposed by the drafter.", increase(DRAFTED)),
    Signal("drafted_token_ratio", "ratio",
           "Proposed tokens over generated ones: how much speculation goes on; unknown below 300 generated.",
           _drafted_share),
    Signal("drafted_token_recent_ratio", "ratio", "The same over the last 10 s.", lately(_drafted_share)),
    Signal("draft_acceptance_ratio", "ratio", "Proposed tokens that were accepted; unknown below 500.",
           ratio(increase(_vllm("spec_decode_num_accepted_tokens_total")), increase(DRAFTED), LEAST_DRAFTED_TOKENS)),
    Signal("draft_positions_accepted", "tokens",
           "First tokens of a draft that are each used in three of ten drafts or more; unknown below 100 drafts.",
           leading_above([ratio(increase(position), increase(DRAFTS), LEAST_DRAFTS) for position in DRAFT_POSITIONS],
                         LEAST_ACCEPTED_SHARE)),

    # What now is compared with
    Signal(SINCE_START, "requests",
           "Requests that `_baseline` is an average of, where it is that since the server started (a rule's "
           "`or_since_start`); else unknown.",
           Formula(lambda view: view.past[BASELINE](SINCE_START) if view.past else None, frozenset(),
                   NoPromQL("it says what was compared with"))),

    # What is known beside the page
    *(Signal(one.name, one.unit, one.description, fact(one)) for one in DECLARED.values()),
)
# fmt: on

_PER_REQUEST = frozenset(
    name
    for group in (
        "request_window_first_tokens prompt_tokens_per_first_token computed_prompt_tokens_per_request",
        "prompt_tokens_mean prompt_tokens_p50 output_tokens_mean prefix_hit_ratio",
        "prefix_queries_tokens prefix_hit_tokens prefix_cached_tokens local_cache_hit_tokens",
        "external_queries_tokens external_hit_tokens",
        "ttft_mean_seconds ttft_p50_seconds queue_mean_seconds prefill_mean_seconds",
        "prefill_ttft_ratio queue_ttft_ratio e2e_mean_seconds e2e_p50_seconds",
    )
    for name in group.split()
)
"""What says how requests are, not how many there are or what happens now: its window widens where few came."""

CATALOGUE: Mapping[str, Signal] = MappingProxyType(
    {
        one.name: replace(one, formula=per_request(one.formula)) if one.name in _PER_REQUEST else one
        for one in SIGNALS
    }
)


REMEMBERED = tuple(
    name
    for group in (
        "arrivals_per_second first_tokens_per_second finished_per_second prompt_tokens_per_second running_mean",
        "prompt_tokens_per_first_token prompt_tokens_p50 output_tokens_mean request_tokens_p99",
        "computed_prompt_tokens_per_request prefix_hit_ratio prefix_hit_tokens_per_second",
        "mm_cache_hit_ratio",
        "draft_acceptance_ratio drafted_token_ratio",
        "kv_usage_mean_ratio kv_usage_per_request_ratio",
        "ttft_mean_seconds ttft_p50_seconds e2e_p50_seconds",
        "itl_mean_seconds itl_p10_seconds itl_p50_seconds itl_stall_ratio itl_hitch_ratio stream_tokens_per_second",
    )
    for name in group.split()
)
"""The signals that each calm stretch keeps, and that can be compared with; all are means, shares or rates."""
LEAST_SINCE_START = 50.0
"""Requests that a server must have served before it is watched, for their average to say what is usual."""
REQUEST_RATE = "first_tokens_per_second"
"""The remembered signal that says how much came in a stretch."""


# What gauges would have shown on average, from what requests did by the time they finished: the batch by Little's law,
# the KV cache that each of them held at most, arrivals as what was served.
_IN_BATCH = increase(Selector(f"{PREFILL}_sum")) + increase(Selector(f"{DECODE}_sum"))
_GAUGES_SINCE_START: Mapping[str, Formula] = {
    "running_mean": _IN_BATCH / window_seconds(),
    "stream_tokens_per_second": increase(GENERATION_TOKENS) / _IN_BATCH,
    "kv_usage_per_request_ratio": _request_room / _pool,
    "arrivals_per_second": rate(FIRST_TOKENS),
}


def _compared(name: str, comparison: str) -> Value:
    """A signal as one of the view's comparisons knows it."""

    def value(view: View) -> float | None:
        past = view.past.get(comparison)
        return None if past is None else past(name)

    return value


_NOW: dict[str, Value] = {name: signal.formula.value for name, signal in CATALOGUE.items()}
_COMPARED: dict[str, Value] = {
    f"{name}_{comparison}": _compared(name, comparison) for comparison in COMPARISONS for name in REMEMBERED
}
_OF_PAST = {**_COMPARED, SINCE_START: _NOW[SINCE_START]}
_VALUES = _NOW | _COMPARED
_READS = {name: signal.formula.reads for name, signal in CATALOGUE.items()} | {
    f"{name}_{comparison}": CATALOGUE[name].formula.reads for comparison in COMPARISONS for name in REMEMBERED
}
_NAMES = frozenset(_VALUES)
_NOTHING: Mapping[str, float | None] = MappingProxyType({})


def signal_names() -> frozenset[str]:
    """All names a clause may use: each signal, and each remembered one with the name of a comparison behind it."""
    return _NAMES


def compared_signal(name: str) -> tuple[str, str] | None:
    """The remembered signal and the comparison that a name such as `itl_p50_seconds_baseline` joins; else None."""
    signal, _, comparison = name.rpartition("_")
    return (signal, comparison) if name in _COMPARED else None


def described(name: str) -> Signal:
    """What a name that a clause may use stands for; KeyError if unknown.

    Of a comparison it is the remembered signal's unit with the comparison's description, its formula that of now.
    """
    compared = compared_signal(name)
    if compared is None:
        return CATALOGUE[name]
    signal, comparison = CATALOGUE[compared[0]], COMPARISONS[compared[1]]
    return replace(signal, name=name, description=f"Of `{signal.name}`: {comparison.description}.")


def metrics_of(name: str) -> frozenset[str]:
    """The canonical metric names a signal is read from; empty for what is not on the page. KeyError if unknown."""
    return _READS[name]


def remembered(span: Span, names: Sequence[str] = REMEMBERED) -> dict[str, float | None]:
    """The figures of one stretch by signal; None where one is unknown, or known only as a bound."""
    signals = Signals(View(span, span, span))
    found = ((name, signals[name]) for name in names)
    return {name: None if isinstance(value, Bound) else value for name, value in found}


def since_start(span: Span, facts: Mapping[str, float]) -> dict[str, float | None]:
    """The remembered figures over an engine's life up to its first page; empty where under 50 requests came in it."""
    view = View(span, span, span, facts=facts)
    requests = CATALOGUE["first_tokens"].formula.value(view)
    if requests is None or requests < LEAST_SINCE_START:
        return {}
    gauges = {name: formula.value(view) for name, formula in _GAUGES_SINCE_START.items()}
    return {**remembered(span), **gauges, SINCE_START: requests}


class Signals(dict[str, float | None]):
    """The signals of one engine at one moment by name: each is computed when asked for, once; None is unknown.

    A name that is none raises KeyError. A dictionary, since rules ask hundreds of times a step: its own method answers
    in a quarter of the time of a function.
    """

    __slots__ = ("_past", "_view")

    def __init__(self, view: View, past: Past | None = None) -> None:
        super().__init__()
        self._past = past
        # Without a likeness nothing of now is asked; a reference to itself would leave each step to the collector.
        self._view = view if past is None else replace(view, past=past.under({}, _NOTHING.get))

    def __missing__(self, name: str) -> float | None:
        value = self[name] = _VALUES[name](self._view)
        return value

    def __call__(self, name: str) -> float | None:
        """The value of a signal: the signals are a Lookup."""
        return self[name]

    def newest_part(self) -> "Signals | None":
        """The signals as if the whole window had been as its newest part is.

        None where that part says too little, or a queue stands: then nothing is over yet.
        """
        span = as_now(self._view.window, self._view.recent, FIRST_TOKENS)
        if span is None or self["waiting_recent_min"]:
            return None
        return Signals(replace(self._view, window=span, requests=None, past={}), self._past)

    def under(self, likeness: Likeness, or_since_start: bool = False) -> Lookup:
        """The same signals, compared with stretches of a load that is alike in this way.

        With `or_since_start` with the average since the server started, while there is no stretch.
        """
        if not likeness and not or_since_start:
            return self.__getitem__
        past = {} if self._past is None else self._past.under(likeness, self.__getitem__, or_since_start)
        return _Under(self, View(past=past)).__getitem__


class _Under(dict[str, float | None]):
    """Signals under a likeness: what is compared is its own, all else is that of the step."""

    __slots__ = ("_signals", "_view")

    def __init__(self, signals: Signals, view: View) -> None:
        super().__init__()
        self._signals = signals
        self._view = view

    def __missing__(self, name: str) -> float | None:
        compared = _OF_PAST.get(name)
        value = self[name] = self._signals[name] if compared is None else compared(self._view)
        return value
