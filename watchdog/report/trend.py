"""Whether it gets better: where the queue, and the time to first token, have gone in the last minute."""

from enum import StrEnum
from typing import NamedTuple

from watchdog.report.course import Line
from watchdog.text import seconds_text

LOOK_BACK_SECONDS = 60.0
_SHORTEST_SECONDS = 20.0
# A queue breathes: a change of less than these is none.
_LEAST_REQUESTS = 3.0
_LEAST_SHARE = 0.1
# Percentiles come from few buckets: a smaller change may be one bucket.
_LEAST_RISE = 1.3


class Direction(StrEnum):
    """Where it is going."""

    WORSE = "worse"
    BETTER = "better"
    STEADY = "steady"


class Trend(NamedTuple):
    """Where it is going, and by what, in words."""

    direction: Direction
    text: str


def trend(queue: Line | None, first_token: Line | None) -> Trend | None:
    """By the queue where there is one, else by the time to first token; None where too little is known."""
    return _of_queue(queue) or _of_first_token(first_token)


def _of_queue(line: Line | None) -> Trend | None:
    pair = _ends(line)
    if pair is None:
        return None
    before, now, seconds = pair
    if max(before, now) < _LEAST_REQUESTS:
        return None
    change = now - before
    if abs(change) < max(_LEAST_REQUESTS, _LEAST_SHARE * before):
        return Trend(Direction.STEADY, "steady: the queue is neither growing nor draining")
    pace = change / seconds
    if change > 0:
        return Trend(Direction.WORSE, f"getting worse: queue +{pace:.1f}/s")
    left = f", empty in about {seconds_text(float(round(now / -pace)))}" if now > 0 else ", empty now"
    return Trend(Direction.BETTER, f"getting better: queue {pace:.1f}/s{left}")


def _of_first_token(line: Line | None) -> Trend | None:
    pair = _ends(line)
    if pair is None or min(pair[:2]) <= 0:
        return None
    before, now, _ = pair
    told = f"TTFT p95 {seconds_text(now)}, a minute ago {seconds_text(before)}"
    if now > _LEAST_RISE * before:
        return Trend(Direction.WORSE, f"getting worse: {told}")
    if before > _LEAST_RISE * now:
        return Trend(Direction.BETTER, f"getting better: {told}")
    return Trend(Direction.STEADY, f"steady: TTFT p95 {seconds_text(now)}")


def _ends(line: Line | None) -> tuple[float, float, float] | None:
    """The value a minute ago, the newest, and the seconds between; None where one is unknown or they are too near."""
    if line is None or line.values[-1] is None:
        return None
    last = line.times[-1]
    known = [
        (time, value)
        for time, value in zip(line.times, line.values, strict=True)
        if value is not None and time >= last - LOOK_BACK_SECONDS
    ]
    seconds = last - known[0][0]
    return (known[0][1], line.values[-1], seconds) if seconds >= _SHORTEST_SECONDS else None
