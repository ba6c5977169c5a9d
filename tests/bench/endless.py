"""Pages without end, out of a recorded phase: gauges repeat, counters go on growing."""

from collections.abc import Sequence

from tests.places import RECORDINGS
from watchdog.scrape.recording import read


class Endless:
    """The pages of a recording, at one a second and over again; a service can be watched by them for hours."""

    def __init__(self, name: str, label: str | None = None) -> None:
        meta, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
        phases = {phase.label: phase for phase in meta.phases}
        phase = phases[label] if label else None
        bodies = [
            scrape.body.decode()
            for scrape in scrapes
            if scrape.body and (phase is None or phase.start <= scrape.wall <= phase.end)
        ]
        parted = [_parted(body) for body in bodies]
        # Series that appear later would be another page.
        self._heads = parted[-1][0]
        self._rows = [values for heads, values in parted if heads == self._heads]
        counters = _counters(bodies[-1])
        self._growth = [
            float(last) - float(first) if head.split("{")[0].split(" ")[0] in counters else 0.0
            for head, first, last in zip(self._heads, self._rows[0], self._rows[-1], strict=True)
        ]

    def page(self, second: int) -> bytes:
        """The page of that second."""
        times, which = divmod(second, max(1, len(self._rows) - 1))
        return "\n".join(
            _line(head, value, times * growth)
            for head, value, growth in zip(self._heads, self._rows[which], self._growth, strict=True)
        ).encode()


def _line(head: str, value: str, grown: float) -> str:
    if not value:
        return head
    return f"{head} {float(value) + grown!r}" if grown else f"{head} {value}"


def _parted(body: str) -> tuple[tuple[str, ...], Sequence[str]]:
    """The text before each value, and the values; a comment has none."""
    lines = [
        (line, "", "") if line.startswith("#") or not line else line.rpartition(" ")
        for line in body.split("\n")
    ]
    return tuple(head for head, _, _ in lines), [value for _, _, value in lines]


def _counters(body: str) -> frozenset[str]:
    """The names of the samples that only grow."""
    names: set[str] = set()
    for line in body.split("\n"):
        if line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:4]
            if kind == "counter":
                names |= {name, f"{name}_total"}
            elif kind in {"histogram", "summary"}:
                names |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    return frozenset(names)
