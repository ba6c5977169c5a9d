"""What the diagnosis could add if the settings said more about a server."""

from collections.abc import Iterator

from watchdog.facts.gpus import find_gpu, similar_gpus
from watchdog.model import Expectations, Objectives


def missing_expectations(expectations: Expectations) -> tuple[str, ...]:
    """What could be added if it were given in settings, one sentence each, the most useful first."""
    return tuple(_hints(expectations))


def _hints(told: Expectations) -> Iterator[str]:
    if not told.vllm_args:
        yield (
            "With `vllm_args` (the server's launch flags) no remedy proposes what is set already, and the "
            "sequence limit and the token budget are known, not inferred."
        )
    yield from _ceiling_hints(told)
    if None in {told.shape.layers, told.shape.kv_heads, told.shape.head_dimension}:
        yield (
            "With `model.layers`, `model.kv_heads` and `model.head_dimension` the bytes per cached token "
            "are known, and so is the KV cache's size in tokens if the page shows only its bytes."
        )
    if told.objectives == Objectives():
        yield (
            "With `slo` (ttft_p95_seconds, itl_p99_seconds, e2e_p95_seconds) latencies are compared with "
            "your objectives, not only with the server's own past."
        )
    if told.expected_shared_prefix_tokens is None:
        yield (
            "With `expected_shared_prefix_tokens` a prefix cache that misses can be distinguished from prompts "
            "that share nothing."
        )


def _ceiling_hints(told: Expectations) -> Iterator[str]:
    has_bandwidth = told.memory_bandwidth_bytes_per_second is not None
    if told.gpu and not has_bandwidth and find_gpu(told.gpu) is None:
        near = similar_gpus(told.gpu)
        meant = f" (known: {', '.join(near)})" if near else ""
        yield (
            f"The GPU {told.gpu!r} is not in the table{meant}: with `memory_bandwidth_bytes_per_second` "
            "the speed limit of one stream is known."
        )
        return
    lacking = [] if told.gpu or has_bandwidth else ["`gpu`"]
    lacking += [] if told.shape.weight_bytes else ["`model.weight_bytes`"]
    if lacking:
        yield f"With {' and '.join(lacking)} it says how near decoding is to what the GPU's memory allows."
