"""What users feel of a server now, in a sentence: who waits, how long a first token takes, where the time goes."""

from collections.abc import Mapping

from watchdog.report.bodies import LatencyShareBody, ReadingsBody, TargetBody
from watchdog.report.overall import over
from watchdog.report.text import words
from watchdog.text import seconds_text

# A part of the request that takes less is not what a person would look at.
LEAST_SHARE_TOLD = 0.5


def impact_text(body: TargetBody, before: float | None = None) -> str:
    """The sentence, over all engines of the server; empty where nothing of it is known.

    `before` is the time to first token (p95, seconds) before what leads began; None where that is not known.
    """
    parts = [
        _queue_text(body.readings),
        _first_token_text(body.readings, before),
        _budget_text(body.latency_budget),
    ]
    told = [part for part in parts if part]
    return ". ".join(part[0].upper() + part[1:] for part in told) + "." if told else ""


def _queue_text(engines: list[ReadingsBody]) -> str:
    """How many requests of those in the server wait; empty where that is unknown or there are none."""
    waiting, running = over(engines, "waiting_requests"), over(engines, "running_requests")
    if waiting is None or running is None or waiting + running <= 0:
        return ""
    if waiting == 0:
        return f"{running:,.0f} requests run, none waits" if running != 1 else "1 request runs, none waits"
    return f"{waiting:,.0f} of {waiting + running:,.0f} requests wait"


def _first_token_text(engines: list[ReadingsBody], before: float | None) -> str:
    """The slowest engine's time to first token; empty where it is unknown."""
    ttft = over(engines, "ttft_p95_seconds")
    was = f"; {seconds_text(before)} before" if before is not None else ""
    return f"a first token takes {seconds_text(ttft)} (p95{was})" if ttft is not None else ""


def _budget_text(budget: Mapping[str, LatencyShareBody]) -> str:
    """The part that most of an average request goes into; empty where no part is most of it."""
    for phase, part in budget.items():
        if part.share is not None and part.share >= LEAST_SHARE_TOLD and phase != "decode":
            return f"{part.share:.0%} of an average request is spent in {words(phase)}"
    return ""
