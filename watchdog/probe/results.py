"""Result files of load generators as steps of a sweep: `vllm bench serve` and guidellm."""

from collections.abc import Mapping
from typing import Any

from watchdog.probe.knee import Step

_MILLISECONDS = 1000.0


def steps_of(result: object) -> list[Step]:
    """The steps that a result file holds; empty where it is of neither program."""
    if not isinstance(result, Mapping):
        return []
    if isinstance(result.get("benchmarks"), list):
        found = (_guidellm(each) for each in result["benchmarks"] if isinstance(each, Mapping))
        return [each for each in found if each is not None]
    step = _vllm_bench(result)
    return [] if step is None else [step]


def _vllm_bench(result: Mapping[str, Any]) -> Step | None:
    tokens = _number(result.get("output_throughput"))
    if tokens is None:
        return None
    mean = _whole_seconds(result)
    rate = _number(result.get("request_throughput"))
    # Without a limit on streams their mean number follows from rate and time (Little's law).
    flowing = rate * mean if rate is not None and mean is not None else None
    return Step(
        concurrency=_number(result.get("max_concurrency")) or flowing or 1.0,
        requests=int(_number(result.get("completed")) or 0),
        tokens_per_second=tokens,
        ttft_mean_seconds=_seconds(result.get("mean_ttft_ms")),
        ttft_p95_seconds=_seconds(result.get("p95_ttft_ms")),
        itl_mean_seconds=_seconds(result.get("mean_itl_ms")),
        itl_p99_seconds=_seconds(result.get("p99_itl_ms")),
    )


def _whole_seconds(result: Mapping[str, Any]) -> float | None:
    """How long an average request took: reported if asked for, else the first token and a gap for each other."""
    told = _seconds(result.get("mean_e2el_ms"))
    first, gap = _seconds(result.get("mean_ttft_ms")), _seconds(result.get("mean_tpot_ms"))
    tokens, requests = _number(result.get("total_output_tokens")), _number(result.get("completed"))
    if told is not None or first is None or gap is None or not tokens or not requests:
        return told
    return first + gap * max(0.0, tokens / requests - 1)


def _guidellm(result: Mapping[str, Any]) -> Step | None:
    metrics = result.get("metrics")
    if not isinstance(metrics, Mapping):
        return None
    tokens = _measured(metrics, "output_tokens_per_second", "mean")
    concurrency = _measured(metrics, "request_concurrency", "mean")
    if tokens is None or concurrency is None:
        return None
    return Step(
        concurrency=concurrency,
        requests=int(_measured(metrics, "time_to_first_token_ms", "count") or 0),
        tokens_per_second=tokens,
        ttft_mean_seconds=_seconds(_measured(metrics, "time_to_first_token_ms", "mean")),
        ttft_p95_seconds=_seconds(_measured(metrics, "time_to_first_token_ms", "p95")),
        itl_mean_seconds=_seconds(_measured(metrics, "inter_token_latency_ms", "mean")),
        itl_p99_seconds=_seconds(_measured(metrics, "inter_token_latency_ms", "p99")),
    )


def _measured(metrics: Mapping[str, Any], name: str, what: str) -> float | None:
    """A figure of the requests that succeeded; percentiles lie one level below."""
    found = metrics.get(name)
    found = found.get("successful") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    percentiles = found.get("percentiles")
    if what in found:
        return _number(found[what])
    return _number(percentiles.get(what)) if isinstance(percentiles, Mapping) else None


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15
    return float(value) if is_number else None  # type: ignore[arg-type]


def _seconds(value: object) -> float | None:
    number = _number(value)
    return None if number is None else number / _MILLISECONDS
