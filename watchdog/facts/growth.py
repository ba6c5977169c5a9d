"""When something that grows is full, as an interval; and how many replicas a load wants."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, sqrt

_FEWEST_POINTS = 8
# Two standard errors: the true growth lies within them in 19 of 20 cases.
_ERRORS = 2.0
# A replica that takes more than this share of what it can queues at each burst.
_WANTED_SHARE = 0.8
# The next request does not fit into what is left beyond it.
_FULL_RATIO = 0.95


@dataclass(frozen=True, slots=True)
class Growth:
    """How fast a value grows a second, at least and at most; `level` is where the line through it ends."""

    level: float
    least_per_second: float
    most_per_second: float


@dataclass(frozen=True, slots=True)
class Until:
    """Seconds until a bound is reached: `latest_seconds` is None where it may never be."""

    soonest_seconds: float
    latest_seconds: float | None


def growth(points: Sequence[tuple[float, float]]) -> Growth | None:
    """The growth of a value seen at these times, by least squares; None for under eight points or at one time.

    Neighbouring points of a gauge resemble each other, so the errors count as many points as their
    autocorrelation leaves: n (1 - r) / (1 + r).
    """
    count = len(points)
    if count < _FEWEST_POINTS:
        return None
    middle = sum(at for at, _ in points) / count
    mean = sum(value for _, value in points) / count
    spread = sum((at - middle) ** 2 for at, _ in points)
    if spread <= 0:
        return None
    slope = sum((at - middle) * (value - mean) for at, value in points) / spread
    rest = [value - mean - slope * (at - middle) for at, value in points]
    square = sum(each * each for each in rest)
    likeness = sum(a * b for a, b in pairwise(rest)) / square if square > 0 else 0.0
    bounded = min(max(likeness, 0.0), 0.95)
    independent = max(3.0, count * (1 - bounded) / (1 + bounded))
    variance = square / count * independent / (independent - 2)
    error = sqrt(variance / (spread * independent / count))
    end = mean + slope * (points[-1][0] - middle)
    return Growth(end, slope - _ERRORS * error, slope + _ERRORS * error)


def time_until(bound: float, seen: Growth) -> Until | None:
    """When a growing value reaches a bound; None where it is not growing, zero where it is there already."""
    left = bound - seen.level
    if left <= 0:
        return Until(0.0, 0.0)
    # What may as well be standing still is no forecast.
    if seen.least_per_second <= 0:
        return None
    return Until(left / seen.most_per_second, left / seen.least_per_second)


def replicas_wanted(
    arrivals_per_second: float | None,
    finished_per_second: float | None,
    queue_stands: bool,
    fullest_ratio: float | None,
    replicas: int = 1,
) -> int | None:
    """Replicas of this kind that the present load needs; None if unknown.

    While a queue stands each replica does what it can, so the load is arrivals over finishes. Otherwise what
    fills up first (pool or batch) at `fullest_ratio` is how much of a replica is taken. Each is to take 80 %.
    """
    if queue_stands:
        if arrivals_per_second is None or not finished_per_second:
            return None
        taken = arrivals_per_second / finished_per_second
    elif fullest_ratio is None:
        return None
    else:
        taken = fullest_ratio
    return max(1, ceil(replicas * taken / _WANTED_SHARE))


@dataclass(frozen=True, slots=True)
class Moment:
    """What one page says of an engine's load; `at` in seconds, None for what the page does not say."""

    at: float
    kv_usage_ratio: float | None
    waiting: float | None
    running: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """Where an engine's load leads; `pool` and `queue` are None where they do not grow or too little was seen.

    `queue_bound` is the length at which `queue_full` is reached, None where nobody set one.
    """

    seconds: float
    pool: Growth | None
    pool_full: Until | None
    queue: Growth | None
    queue_full: Until | None
    queue_bound: float | None
    replicas: int | None


def outlook(
    moments: Sequence[Moment],
    arrivals_per_second: float | None,
    finished_per_second: float | None,
    most_running: float | None,
    queue_bound: float | None = None,
) -> Outlook:
    """What these pages say of the time ahead; `most_running` is the batch limit, None where it is not known."""
    usage = growth([(each.at, each.kv_usage_ratio) for each in moments if each.kv_usage_ratio is not None])
    queue = growth([(each.at, each.waiting) for each in moments if each.waiting is not None])
    grows = queue is not None and queue.least_per_second > 0 and queue.level >= 1
    stands = bool(moments) and all((each.waiting or 0.0) > 0 for each in moments)
    seconds = moments[-1].at - moments[0].at if moments else 0.0
    return Outlook(
        seconds=seconds,
        pool=usage,
        pool_full=time_until(_FULL_RATIO, usage) if usage else None,
        queue=queue if grows else None,
        queue_full=time_until(queue_bound, queue) if queue and queue_bound is not None else None,
        queue_bound=queue_bound,
        replicas=replicas_wanted(
            arrivals_per_second, finished_per_second, grows or stands, _fullest(moments, most_running)
        ),
    )


def _fullest(moments: Sequence[Moment], most_running: float | None) -> float | None:
    """The greater of the mean shares of pool and batch that are taken."""
    shares = [_mean([each.kv_usage_ratio for each in moments])]
    if most_running:
        running = _mean([each.running for each in moments])
        shares.append(None if running is None else running / most_running)
    known = [each for each in shares if each is not None]
    return max(known) if known else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) / len(known) if known else None
