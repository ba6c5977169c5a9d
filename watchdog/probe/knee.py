"""Where more streams at once stop giving more tokens: the knee of a concurrency sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from statistics import quantiles

# Doubling the streams is worth it while it gives this much more; below it latency grows as fast as the load.
_LEAST_GAIN = 1.15
# A step in which a chunk of a prompt is computed may take so much longer than one without.
_ADDED_GAP_SECONDS = 0.05
_LEAST_BUDGET = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a sweep: so many streams at once, and what came of them.

    Seconds to first tokens and gaps are those of all its streams; `limit` is what bound it by the page's reading,
    "unknown" where none did.
    """

    concurrency: float
    requests: int
    tokens_per_second: float
    ttft_mean_seconds: float | None = None
    ttft_p95_seconds: float | None = None
    itl_mean_seconds: float | None = None
    itl_p99_seconds: float | None = None
    limit: str = "unknown"


@dataclass(frozen=True, slots=True)
class Knee:
    """The last step that was worth its streams; `reached` is whether a later one was not.

    `max_num_seqs` and `token_budget` are flags to match; None where nothing gives them.
    """

    step: Step
    reached: bool
    max_num_seqs: int | None
    token_budget: int | None


def knee(steps: Sequence[Step], prompt_tokens: float | None = None) -> Knee | None:
    """The knee of steps in any order; None for none. `prompt_tokens` is the length that was asked with."""
    ordered = sorted((each for each in steps if each.concurrency > 0), key=lambda each: each.concurrency)
    if not ordered:
        return None
    best, reached = ordered[0], False
    for step in ordered[1:]:
        doublings = log2(step.concurrency / best.concurrency)
        if doublings <= 0:
            continue
        if best.tokens_per_second > 0 and (
            step.tokens_per_second / best.tokens_per_second < _LEAST_GAIN**doublings
        ):
            reached = True
            break
        best = step
    alone = ordered[0].ttft_mean_seconds
    speed = prompt_tokens / alone if prompt_tokens and alone else None
    return Knee(best, reached, ceil(best.concurrency) if reached else None, _budget(speed, best))


def _budget(prefill_tokens_per_second: float | None, at: Step) -> int | None:
    """The power of two below what a prefill computes in the gap that may be added, above the batch."""
    if prefill_tokens_per_second is None:
        return None
    wanted = prefill_tokens_per_second * _ADDED_GAP_SECONDS
    below, above = 1 << int(log2(max(wanted, 1.0))), 1 << ceil(log2(max(at.concurrency, 1.0)))
    return max(_LEAST_BUDGET, below, above)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The percentile of a list; None for an empty one."""
    if len(values) < 2:
        return values[0] if values else None
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[min(98, max(0, round(share * 100) - 1))]
