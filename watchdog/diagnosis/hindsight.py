"""Signals of one engine at moments that have passed, from the pages that are still remembered."""

from collections.abc import Collection, Mapping, Sequence

from watchdog.diagnosis.engines import view_of
from watchdog.history.history import History
from watchdog.model import Subject
from watchdog.signals.catalogue import Signals, metrics_of, signal_names

MOST_MOMENTS = 60
"""As many as a small picture has room for; each costs a look at a window."""

Moments = Sequence[tuple[float, float | None]]
"""A value at each monotonic time, the oldest first; None where it was unknown."""


def hindsight(history: History, subject: Subject, names: Collection[str]) -> Mapping[str, Moments]:
    """How these signals went; what is not read from the page, or is no signal, is left out.

    What is known beside the page is not remembered, and what stands on it is unknown here.
    """
    known = [name for name in names if name in signal_names() and metrics_of(name)]
    found: dict[str, list[tuple[float, float | None]]] = {name: [] for name in known}
    if not known:
        return found
    count = len(history.frames)
    step = max(1, count // MOST_MOMENTS)
    # From the end, so that the newest is among them.
    for length in sorted(range(count, 0, -step)):
        then = history.until(length)
        signals = Signals(view_of(then, subject, {}))
        for name, moments in found.items():
            moments.append((then.times[-1], signals[name]))
    return found
