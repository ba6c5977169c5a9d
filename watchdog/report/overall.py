"""A reading of a whole server: over its engines, the same in every output."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from watchdog.report.bodies import TargetBody
from watchdog.text import quantity_text

SUMMED = frozenset({"waiting_requests", "running_requests"})
"""What adds up over engines; of everything else the worst engine is what users feel."""
COLUMNS = (("waiting_requests", "waiting"), ("kv_usage_ratio", "KV"), ("ttft_p95_seconds", "TTFT p95"))
"""The readings that tell a server's load at a glance, and what they are called there."""
UNKNOWN = "-"


class Engine(Protocol):
    """What is read of one engine."""

    @property
    def values(self) -> Mapping[str, float | None]:
        """Readings by name; None where unknown."""


def overall(body: TargetBody, name: str) -> float | None:
    """A reading over all engines, the sum of a count and else the greatest; None where no engine shows it."""
    return over(body.readings, name)


def over(engines: Iterable[Engine], name: str) -> float | None:
    """The same of these engines."""
    known = [value for each in engines if (value := each.values.get(name)) is not None]
    if not known:
        return None
    return sum(known) if name in SUMMED else max(known)


def overall_text(body: TargetBody, name: str) -> str:
    """The same with its unit; a dash where it is unknown."""
    value = overall(body, name)
    return UNKNOWN if value is None else quantity_text(name, value)


def glance(body: TargetBody) -> str:
    """The readings that tell a server's load, in a line; empty where none is known."""
    told = [f"{label} {text}" for name, label in COLUMNS if (text := overall_text(body, name)) != UNKNOWN]
    return ", ".join(told)
