"""What is shown of an engine even when nothing is firing: its load, its latency budget, and the limit that binds."""

from collections.abc import Mapping
from types import MappingProxyType

from watchdog.history.number import Calculation, calculation
from watchdog.model import LatencyShare, Limit, Lookup, Readings, Subject

# Reading -> (signal, what it says). The key carries its unit and becomes a metric's name.
READINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "prompt_tokens_per_second": ("prompt_tokens_per_second", "Prompt tokens per second."),
        "generation_tokens_per_second": ("generation_tokens_per_second", "Tokens generated per second."),
        "finished_requests_per_second": ("finished_per_second", "Completions per second."),
        "arrivals_per_second": ("arrivals_per_second", "Arrivals per second."),
        "window_first_tokens": ("first_tokens", "Requests that got their first token in the last 30 s."),
        "running_mean_requests": ("running_mean", "Average requests in the batch over the last 30 s."),
        "standing_queue_requests": (
            "waiting_recent_min",
            "Shortest queue of the last 10 s: what never emptied.",
        ),
        "running_requests": ("running_last", "Requests in the batch."),
        "waiting_requests": ("waiting_last", "Requests in the queue."),
        "kv_usage_ratio": ("kv_usage_last_ratio", "Share of the KV cache held by live requests."),
        "kv_transfers_per_second": (
            "kv_transfers_per_second",
            "KV transfers from another server per second.",
        ),
        "kv_used_tokens": ("", "Tokens of the KV cache held by live requests."),
        "kv_pool_tokens": ("pool_tokens", "Tokens the KV cache holds."),
        "prefix_hit_ratio": (
            "prefix_hit_ratio",
            "Share of looked-up prompt tokens found in the prefix cache.",
        ),
        "prompt_tokens_mean": ("prompt_tokens_mean", "Average prompt of a request, in tokens."),
        "output_tokens_mean": ("output_tokens_mean", "Average output of a request, in tokens."),
        "requests_that_fit": ("requests_that_fit", "Average requests the KV cache has room for at once."),
        "ttft_p50_seconds": ("ttft_p50_seconds", "Median time to first token."),
        "ttft_p95_seconds": ("ttft_p95_seconds", "95th percentile time to first token."),
        "itl_p50_seconds": ("itl_p50_seconds", "Median inter-token latency."),
        "itl_p99_seconds": ("itl_p99_seconds", "99th percentile inter-token latency."),
        "preemptions_per_second": ("preemptions_per_second", "Preemptions per second."),
        "seconds_since_progress": ("seconds_since_progress", "Seconds since a step ended or a token moved."),
        "single_stream_tokens_per_second": (
            "single_stream_tokens_per_second",
            "Tokens per second that one stream gets.",
        ),
        "decode_ceiling_tokens_per_second": (
            "decode_ceiling_tokens_per_second",
            "Memory bandwidth over weight bytes: the most one stream can get.",
        ),
        "decode_ceiling_ratio": ("", "What one stream gets, as a share of that ceiling."),
    }
)
STILL_SECONDS = 15.0
"""After so long without a step nothing moves any more: a pace over the window would be one of before."""
_PACES = ("prompt_tokens_per_second", "generation_tokens_per_second", "finished_requests_per_second")
BEFORE_ENGINE = "before_engine"
"""The part of the latency budget that went by before a request reached the engine's queue."""
# A part of TTFT that is smaller is within what the two histograms differ by.
LEAST_BEFORE_ENGINE = 0.1
NONE, UNKNOWN = "none", "unknown"
LIMITS = (NONE, *Limit, UNKNOWN)
"""All that may be said to bound throughput."""
_PRODUCT, _QUOTIENT = calculation("*"), calculation("/")


def read(subject: Subject, lookup: Lookup, limit: Limit | None = None) -> Readings:
    """The readings of one engine from its signals; what is unknown is None.

    `limit` is what the rules say that binds; None where those that hold name none. What comes from steps is 0 a second
    once none has ended for a while.
    """
    values = {name: lookup(signal) if signal else None for name, (signal, _) in READINGS.items()}
    still = values["seconds_since_progress"]
    if still is not None and still >= STILL_SECONDS:
        values |= {name: 0.0 for name in _PACES if values[name] is not None}
    values["kv_used_tokens"] = _both(_PRODUCT, values["kv_usage_ratio"], values["kv_pool_tokens"])
    values["decode_ceiling_ratio"] = _both(
        _QUOTIENT, values["single_stream_tokens_per_second"], values["decode_ceiling_tokens_per_second"]
    )
    word, share = _limit_and_share(lookup, limit)
    return Readings(subject, values, word, share, latency_budget(lookup))


def latency_budget(lookup: Lookup) -> dict[str, LatencyShare]:
    """Where the average request spent its time: queue, prefill and decode; empty where one is unknown.

    Queue is time to first token less prefill, since booked queue time lags while a queue grows (recording
    kv-pool-exhausted). What neither the booked time nor the queue that was seen explains went by before the engine
    (HTTP, tokenising, images); that part is left out while it is small.
    """
    ttft, prefill = lookup("ttft_mean_seconds"), lookup("prefill_mean_seconds")
    decode = lookup("decode_mean_seconds")
    if ttft is None or prefill is None or decode is None:
        return {}
    prefill = min(prefill, ttft)
    before = _before_engine(lookup, ttft, ttft - prefill)
    parts = {"queue": ttft - prefill - before, "prefill": prefill, "decode": decode}
    if before:
        parts = {BEFORE_ENGINE: before, **parts}
    whole = ttft + decode
    if whole <= 0:
        return {}
    return {
        name: LatencyShare(
            seconds, seconds / whole, None if name == "decode" or ttft <= 0 else seconds / ttft
        )
        for name, seconds in parts.items()
    }


def _before_engine(lookup: Lookup, ttft: float, waited: float) -> float:
    """What of the seconds before prefill the engine's queue does not explain; 0 for little of TTFT, or unknown.

    Those that waited at once over the pace at which first tokens come is what they waited (Little's law).
    """
    booked, longest = lookup("queue_mean_seconds"), lookup("waiting_max")
    pace = lookup("first_tokens_per_second")
    if booked is None or longest is None or not pace:
        return 0.0
    before = waited - max(booked, longest / pace)
    return before if before >= LEAST_BEFORE_ENGINE * ttft else 0.0


def _limit_and_share(lookup: Lookup, limit: Limit | None) -> tuple[str, float | None]:
    """The limit, and the share of the window in which something waited for it."""
    queue, share = lookup("waiting_recent_min"), lookup("waiting_share_of_time")
    if limit is Limit.STALLED:
        return str(limit), 1.0
    if limit is not None:
        return str(limit), share or None
    if queue is None or share is None or queue > 0:
        # A queue that no rule explains is no proof of anything.
        return UNKNOWN, None
    return NONE, 1.0 - share


def _both(calculate: Calculation, left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else calculate(left, right)
